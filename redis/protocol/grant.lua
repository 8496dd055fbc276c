-- Put in front of the scripts that grant leases.
local call = redis.call

-- refuses tells why key cannot be given to token: nil if it is free, or has the token and
-- again is given. Else it is what is left of the present lease in milliseconds, negated,
-- or 0 if it has no end. That the key has the token though again is not given is an
-- error of its own: the request came twice, and the first one may have been a grant.
-- Other errors are the server's.
local function refuses(key, token, again)
  local holder = redis.pcall('get', key)
  if not holder then
    return nil
  end
  if holder == token then
    return not again and { err = 'OWNTOKEN the key has this token already' } or nil
  end
  if type(holder) == 'table' and string.sub(holder.err, 1, 9) ~= 'WRONGTYPE' then
    return holder
  end
  local left = call('pttl', key)
  return left < 0 and 0 or -math.max(left, 1)
end

-- draw stores the next fence in counter and returns it: one more than the last, and
-- at least the server's time in microseconds, so that fences go on growing when the
-- counter is lost. The counter stays for a day, or for ttl milliseconds if that is
-- longer. A script that fails is not undone, so a fence is drawn before the lease is
-- stored: what is wrong with the counter leaves no lease behind.
local function draw(counter, ttl)
  if tonumber(ttl) < 86400000 then
    ttl = '86400000'
  end
  local now = call('time')
  local fence = now[1] * 1000000 + now[2]
  -- The time is nearly always ahead of the last fence, so one command stores it and
  -- reads what it replaces. It has to be a number here: a command gets all digits of
  -- one, where tostring would round them.
  local was = call('set', counter, fence, 'px', ttl, 'get')
  if not was then
    return fence
  end
  local last = tonumber(was)
  if last and last < fence then
    return fence
  end
  if not (last and last < 9007199254740991) then
    call('set', counter, was) -- as it was, and for somebody to look at
    error(last and 'locco: the fence counter has reached 2^53' or 'locco: the fence counter is not a number')
  end
  fence = math.floor(last) + 1
  call('set', counter, fence, 'px', ttl)
  return fence
end
