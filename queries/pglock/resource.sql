-- FenceAdvance accepts a token for a resource when none above it was accepted. A
-- higher one raises the mark; an equal one only locks it FOR SHARE, so that
-- writers with the current token run side by side and a higher one waits for
-- their commit. It returns the mark that decided; below the offered token never.
-- name: FenceAdvance :one
WITH raised AS (
    INSERT INTO gatepost.fences AS f (resource, token, updated_at)
    SELECT @resource, @token, clock_timestamp()
    WHERE NOT EXISTS (
        SELECT FROM gatepost.fences AS same
        WHERE same.resource = @resource
            AND same.token >= @token
    )
    ON CONFLICT (resource) DO UPDATE
    SET token = excluded.token, updated_at = clock_timestamp()
    WHERE f.token < excluded.token
    RETURNING f.token
)
SELECT raised.token FROM raised;

-- FenceShare locks the mark of a resource against a higher token.
-- name: FenceShare :one
SELECT f.token
FROM gatepost.fences AS f
WHERE f.resource = @resource
FOR SHARE;
