-- +goose Up

-- A heartbeat writes all rows of a client in one statement, and what a page's rows were
-- before is not gone until the page is read again after the commit. So a page holds its
-- rows twice, or the new versions go elsewhere, and into each index: of 1,000 leases at
-- 70 only 43 % stayed in their pages at the first beat, and the pages that took the
-- others were filled to 70 again. Below half, all stay from the first beat on. It counts
-- for pages that are filled from here on: nothing is rewritten, and beats go on.
ALTER TABLE gatepost.leases SET (fillfactor = 45);
ALTER TABLE gatepost.waiters SET (fillfactor = 45);

-- +goose Down

ALTER TABLE gatepost.waiters SET (fillfactor = 70);
ALTER TABLE gatepost.leases SET (fillfactor = 70);
