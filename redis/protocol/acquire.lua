-- Takes KEYS[1] for the token ARGV[1] and ARGV[2] milliseconds if it is free. With
-- the counter of its fences as KEYS[2] the grant is fenced. With ARGV[3] a live
-- lease of the same token is a grant too.
--
-- Returns the fence, or 1 if there is none; when refused, the milliseconds that
-- the present lease still runs, negated, or 0 if it has no end.
local fence = KEYS[2] and next_fence(KEYS[2])
if not redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2], 'nx') then
  if not ARGV[3] or redis.call('get', KEYS[1]) ~= ARGV[1] then
    local left = redis.call('pttl', KEYS[1])
    return left < 0 and 0 or -math.max(left, 1)
  end
  redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
end
if not fence then
  return 1
end
draw(KEYS[2], fence, ARGV[2])
return fence
