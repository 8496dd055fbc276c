-- Takes KEYS[1] for the token ARGV[1] and ARGV[2] milliseconds if it is free. With
-- the counter of its fences as KEYS[2] the grant is fenced. With ARGV[3] a live
-- lease of the same token is a grant too.
--
-- Returns the fence, or 1 if there is none; when refused, the milliseconds that
-- the present lease still runs, negated, or 0 if it has no end.
if call('exists', KEYS[1]) == 1 and not (ARGV[3] and call('get', KEYS[1]) == ARGV[1]) then
  local left = call('pttl', KEYS[1])
  return left < 0 and 0 or -math.max(left, 1)
end
if not KEYS[2] then
  call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
  return 1
end
local fence = draw(KEYS[2], ARGV[2])
call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
return fence
