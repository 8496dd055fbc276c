-- Raises the mark of the resource $1 to the fence $2 unless it is higher. Answers a row
-- if it was not. The row stays locked until the end of the transaction: whoever
-- claims the resource meanwhile waits for that.
INSERT INTO {marks} AS m (name, fence)
VALUES ($1, $2::bigint)
ON CONFLICT (name) DO UPDATE SET fence = excluded.fence
WHERE m.fence <= excluded.fence
RETURNING true
