-- Hands KEYS[1] from the token ARGV[1] to the token ARGV[2] for ARGV[3]
-- milliseconds. With the counter of its fences as KEYS[2] the grant is fenced. With
-- ARGV[4] a live lease of the token ARGV[2] is a grant too; without it, the error OWNTOKEN.
-- Returns what the script that acquires returns; 0 also if nobody has the key.
local holder = call('get', KEYS[1])
if not holder then
  return 0
end
if holder ~= ARGV[1] then
  local refusal = refuses(KEYS[1], ARGV[2], ARGV[4])
  if refusal then
    return refusal
  end
end
if not KEYS[2] then
  call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
  return 1
end
local fence = draw(KEYS[2], ARGV[3])
call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
return fence
