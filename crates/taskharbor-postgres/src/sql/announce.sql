-- Announces a worker until a time. WRK-1. The commit does not wait for the disk: announcements that a crash of the
-- server loses are soon repeated. It is one statement without a function, since every worker sends it every ten seconds.
INSERT INTO {schema}.th_worker AS w (holder, incarnation, started_at, seen_at, expires_at, info)
SELECT $1, $2, $4, $4, $5, ($3::bytea[])[1] WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL
ON CONFLICT (holder, incarnation) DO UPDATE
SET seen_at = excluded.seen_at, expires_at = excluded.expires_at, info = excluded.info
