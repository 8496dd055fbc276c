-- Runs the command ARGV[2], ARGV[3]… unless the mark KEYS[1] of the resource is
-- higher than the fence ARGV[1], and raises the mark to the fence. KEYS[2]… are the
-- keys that the command uses.
-- Returns 0 and the answer of the command, or the mark if it is higher.
local mark = tonumber(redis.call('get', KEYS[1]) or 0)
if not mark then
  error('locco: the mark of the resource is not a number')
end
local fence = tonumber(ARGV[1])
if mark > fence then
  return { mark }
end
if mark < fence then
  redis.call('set', KEYS[1], ARGV[1])
end
return { 0, redis.call(unpack(ARGV, 2)) }
