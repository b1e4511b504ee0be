/**
 * KEYS: the head. ARGV: the life that is expected ('' for none), the life from now on, the position that
 * is expected, the new one, the rest of the head, what the keys of rows begin with, and then for every
 * changed row its id, owner, place, whether it is live, and its text ('' to remove it).
 */
export const COMMIT = `
local life = redis.call('HGET', KEYS[1], 'life') or ''
local position = redis.call('HGET', KEYS[1], 'position') or ''
if life ~= ARGV[1] or position ~= ARGV[3] then return 0 end
local keys = ARGV[6]
for i = 7, #ARGV, 5 do
  local id, owner, place, live, row = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  if row == '' then
    redis.call('HDEL', keys .. 'rows', id)
    redis.call('ZREM', keys .. 'owner:' .. owner, id)
  else
    redis.call('HSET', keys .. 'rows', id, row)
    redis.call('ZADD', keys .. 'owner:' .. owner, place, id)
  end
  if live == '1' then
    redis.call('ZADD', keys .. 'live:' .. owner, place, id)
  else
    redis.call('ZREM', keys .. 'live:' .. owner, id)
  end
end
redis.call('HSET', KEYS[1], 'life', ARGV[2], 'position', ARGV[4], 'rest', ARGV[5])
return 1`;

/** Takes or renews the claim for that many milliseconds; 0 when somebody else holds it. */
export const CLAIM = `
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`;

/** Gives the claim up, if it is still this one's. */
export const RELEASE = `
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`;
