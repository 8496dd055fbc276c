-- Extends several keys. For each there are the arguments token and milliseconds.
-- Returns for each 1, 0 if the token does not hold it, or the text of its error:
-- one bad entry harms no other.
local answer = {}
for i = 1, #KEYS do
  local value = redis.pcall('get', KEYS[i])
  if value == ARGV[2 * i - 1] then
    value = redis.pcall('pexpire', KEYS[i], ARGV[2 * i])
    answer[i] = type(value) == 'table' and value.err or value
  else
    answer[i] = type(value) == 'table' and value.err or 0
  end
end
return answer
