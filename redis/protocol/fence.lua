-- Put in front of the scripts that grant leases.
--
-- next_fence returns the next fence: one more than the last, and at least the
-- server's time in microseconds, so that fences go on growing when the counter is
-- lost. draw stores it, for a day or for ttl milliseconds if that is longer. There
-- are two functions because a script that fails is not undone: what is wrong with
-- the counter, or with the rights of the user, must show before a lease is stored.
local function next_fence(counter)
  local last = tonumber(redis.call('get', counter) or 0)
  local now = redis.call('time')
  if not last then
    error('locco: the fence counter is not a number')
  end
  local fence = math.max(last + 1, now[1] * 1000000 + now[2])
  if fence >= 9007199254740992 then
    error('locco: the fence counter has reached 2^53')
  end
  return fence
end

local function draw(counter, fence, ttl)
  -- The digits in full: tostring would round them.
  redis.call('set', counter, string.format('%.0f', fence), 'px', math.max(ttl, 86400000))
end
