-- Tells the mark of the resource $1.
SELECT fence FROM {marks} WHERE name = $1
