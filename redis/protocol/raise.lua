-- Raises the mark KEYS[1] of a resource to the fence ARGV[1] unless it is higher.
-- Returns 0, or the mark if it is higher.
local mark = tonumber(redis.call('get', KEYS[1]) or 0)
if not mark then
  error('locco: the mark of the resource is not a number')
end
local fence = tonumber(ARGV[1])
if mark > fence then
  return mark
end
if mark < fence then
  redis.call('set', KEYS[1], ARGV[1])
end
return 0
