-- NoteAdd is what an application writes under a lease.
-- name: NoteAdd :exec
INSERT INTO notes (text)
VALUES (@text);

-- NoteCount is how many writes were let through.
-- name: NoteCount :one
SELECT count(*)
FROM notes;
