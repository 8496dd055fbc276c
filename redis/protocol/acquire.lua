-- Takes KEYS[1] for the token ARGV[1] and ARGV[2] milliseconds if it is free. With
-- the counter of its fences as KEYS[2] the grant is fenced. With ARGV[3] a live
-- lease of the same token is a grant too; without it, the error OWNTOKEN.
--
-- Returns the fence, or 1 if there is none; when refused, the milliseconds that
-- the present lease still runs, negated, or 0 if it has no end.
local refusal = refuses(KEYS[1], ARGV[1], ARGV[3])
if refusal then
  return refusal
end
if not KEYS[2] then
  call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
  return 1
end
local fence = draw(KEYS[2], ARGV[2])
call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
return fence
