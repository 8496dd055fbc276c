-- Takes several keys in one step, all or none. For each there are the arguments
-- token, milliseconds and '1' if a live lease of the same token is a grant too,
-- else '0', and it is the error OWNTOKEN. KEYS has the keys and then, if the grants are fenced, their counters.
--
-- Returns 0 and the fences (1 where there is none), or the position of the first
-- key that is refused.
local n = #ARGV / 3
for i = 1, n do
  local a = 3 * i
  local refusal = refuses(KEYS[i], ARGV[a - 2], ARGV[a] == '1')
  if refusal then
    return type(refusal) == 'table' and refusal or { i }
  end
end
local answer = { 0 }
for i = 1, n do -- all counters first: one that is broken leaves no lease behind
  answer[i + 1] = KEYS[n + i] and draw(KEYS[n + i], ARGV[3 * i - 1]) or 1
end
for i = 1, n do
  call('set', KEYS[i], ARGV[3 * i - 2], 'px', ARGV[3 * i - 1])
end
return answer
