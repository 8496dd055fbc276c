-- Compares the sequence with the marks: the next fence, and the largest one that a
-- resource has seen (0 if none).
SELECT
    s.last_value + CASE WHEN s.is_called THEN 1 ELSE 0 END,
    coalesce((SELECT max(m.fence) FROM {marks} AS m), 0)
FROM {fence} AS s
