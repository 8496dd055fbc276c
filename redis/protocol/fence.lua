-- Put in front of the scripts that grant leases.
--
-- draw stores the next fence in counter and returns it: one more than the last, and
-- at least the server's time in microseconds, so that fences go on growing when the
-- counter is lost. The counter stays for a day, or for ttl milliseconds if that is
-- longer. A script that fails is not undone, so a fence is drawn before the lease is
-- stored: what is wrong with the counter leaves no lease behind.
local function draw(counter, ttl)
  local last = tonumber(redis.call('get', counter) or 0)
  if not last then
    error('locco: the fence counter is not a number')
  end
  local now = redis.call('time')
  local fence = math.max(last + 1, now[1] * 1000000 + now[2])
  if fence >= 9007199254740992 then
    error('locco: the fence counter has reached 2^53')
  end
  if tonumber(ttl) < 86400000 then
    ttl = '86400000'
  end
  -- The digits in full: tostring would round them.
  redis.call('set', counter, string.format('%.0f', fence), 'px', ttl)
  return fence
end
