-- Takes several keys in one step, all or none. For each there are the arguments
-- token, milliseconds and '1' if a live lease of the same token is a grant too,
-- else '0'. KEYS has the keys and then, if the grants are fenced, their counters.
--
-- Returns 0 and the fences (1 where there is none), or the position of the first
-- key that is refused.
local n = #ARGV / 3
for i = 1, n do
  local a = 3 * i
  if redis.call('exists', KEYS[i]) == 1 and not (ARGV[a] == '1' and redis.call('get', KEYS[i]) == ARGV[a - 2]) then
    return { i }
  end
end
local answer = { 0 }
for i = 1, n do
  answer[i + 1] = KEYS[n + i] and next_fence(KEYS[n + i]) or 1
end
for i = 1, n do
  local a = 3 * i
  redis.call('set', KEYS[i], ARGV[a - 2], 'px', ARGV[a - 1])
  if KEYS[n + i] then
    draw(KEYS[n + i], answer[i + 1], ARGV[a - 1])
  end
end
return answer
