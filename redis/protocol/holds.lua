-- Returns 1 if the token ARGV[1] holds KEYS[1], else 0. It is a script because a
-- plain GET may be sent to a replica.
return redis.call('get', KEYS[1]) == ARGV[1] and 1 or 0
