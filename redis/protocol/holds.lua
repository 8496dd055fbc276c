-- Returns 1 if the token ARGV[1] holds KEYS[1], else 0. The second command changes
-- nothing, as the key is there, but is refused by a server that has become a replica,
-- whose answer could be an old one. What else it may be refused for, such as too little
-- memory, does not matter here.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
local written = redis.pcall('set', KEYS[1], ARGV[1], 'nx')
if type(written) == 'table' and written.err and string.find(written.err, 'READONLY', 1, true) then
  return written
end
return 1
