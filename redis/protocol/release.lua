-- Frees KEYS[1] if the token ARGV[1] holds it, and says so on the channel ARGV[2]
-- if there is one, by the command ARGV[3].
-- Returns 1, 0 if the token does not hold the key, 2 if the key is free but the
-- message was refused, or 3 if the server does not know the command.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('del', KEYS[1])
if ARGV[2] then
  local receivers = redis.pcall(ARGV[3], ARGV[2], '')
  if type(receivers) == 'table' and receivers.err then
    return string.find(receivers.err, 'nknown', 1, true) and 3 or 2
  end
end
return 1
