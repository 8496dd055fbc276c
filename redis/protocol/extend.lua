-- Gives KEYS[1] a new lease of ARGV[2] milliseconds if the token ARGV[1] holds it.
-- Returns 1, or 0 if it does not.
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0
