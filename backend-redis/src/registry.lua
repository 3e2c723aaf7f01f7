-- The registry in Redis: one script, one verb a call, each atomic and one round trip.
--
-- KEYS[1]  the stem: '{prefix/service}' for a service, '{prefix}:names' for the list of services. Every other key begins with it and
--          so lies in its hash slot.
-- ARGV     verb, nonce (given back, so that an answer is known to belong to its question), PUBLISH or SPUBLISH, the verb's own.
--
-- stem/id          the record, a string with a TTL; without one if it was written by hand
-- stem:index       sorted set: id by deadline, in milliseconds of the server's clock; 'inf' without one
-- stem:revisions   sorted set: id by the version of its last change
-- stem:owners      hash: id to the lease that wrote it; none for a record written by hand
-- stem:taken       sorted set: 'lease/id' of records that were taken over from a lease, by the deadline of that lease
-- stem:version     counter of changes
-- stem:changes     channel: 'before version kind ttl length\nid' and the value
--
-- In the list of services the ids are services, there are no records, a deadline is when to look whether the service still has
-- records, and an owner is the version of the service at which it was last seen to have some.
local stem, verb, nonce, publish = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local index, revisions, owners = stem .. ':index', stem .. ':revisions', stem .. ':owners'
local taken, counter = stem .. ':taken', stem .. ':version'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Milliseconds that the keys about records outlive the last record, so that versions go on and nothing is left for ever.
local KEEP = 3600000
-- The longest TTL.
local LIFE = 365 * 24 * 3600000
-- Removals in one call, so that no call blocks the server for long.
local MOST = 1000
-- How often the list of services looks again at what one of its readers is looking at.
local AGAIN = 1000
-- The longest value that is published, and what is published in the place of a longer one. A server cuts subscribers off that cannot
-- take their messages fast enough, and one such record would cut off every one of them, again and again.
local LONGEST, TOO_LONG = 1048576, 'longer than 1048576 bytes'

local function record(id)
  return stem .. '/' .. id
end

local function text(number)
  return string.format('%.0f', number)
end

-- Counts a change and tells of it. A new counter begins with the clock, so that no version is ever used twice. Always the first write
-- of a change: should the caller lack a right, the counter is put back, nothing else was written, and nobody was told.
local function announce(kind, id, ttl, value)
  if #value > LONGEST then
    value = TOO_LONG
  end
  local before = redis.call('GET', counter)
  local version
  if before then
    version = text(redis.call('INCR', counter))
  else
    version = text(time[1] * 1000000 + time[2])
    redis.call('SET', counter, version)
  end
  local head = string.format('%s %s %s %s %d\n', before or '0', version, kind, text(ttl), #id)
  local told = redis.pcall(publish, stem .. ':changes', head .. id .. value)
  if type(told) == 'table' and told.err then
    redis.call(before and 'DECR' or 'DEL', counter)
    error(told.err)
  end
  return version
end

-- Whoever only discovers may have no right to the record itself. It sweeps all the same: what is past its deadline ends by itself.
local delete = (verb == 'sweep' or verb == 'purge' or verb == 'check') and redis.pcall or redis.call

local function drop(id)
  announce('delete', id, 0, '')
  delete('DEL', record(id))
  redis.call('ZREM', index, id)
  redis.call('ZREM', revisions, id)
  redis.call('HDEL', owners, id)
end

-- Removes what is past its deadline, and answers how many that were.
local function sweep()
  local past = redis.call('ZRANGEBYSCORE', index, '-inf', '(' .. text(now), 'LIMIT', 0, MOST)
  for _, id in ipairs(past) do
    drop(id)
  end
  return #past
end

-- Lets the keys about records live as long as the records and a while longer.
local function tend()
  local last = redis.call('ZREVRANGE', index, 0, 0, 'WITHSCORES')[2]
  -- Whoever wrote a deadline of another age by hand must not keep others from writing.
  local ends = math.min(math.max(last and tonumber(last) or now, now), now + LIFE)
  redis.call('ZREMRANGEBYSCORE', taken, '-inf', '(' .. text(now))
  for _, key in ipairs({ index, revisions, owners, taken, counter }) do
    if last == 'inf' then
      redis.call('PERSIST', key)
    else
      redis.call('PEXPIREAT', key, text(ends + KEEP))
    end
  end
end

-- Milliseconds until a deadline has passed; -1 for never.
local function left(score)
  if not score or score == 'inf' then
    return -1
  end
  return math.max(tonumber(score) - now + 1, 1)
end

local function version()
  return redis.call('GET', counter) or '0'
end

-- nonce, version, milliseconds to the first and the last deadline, how many there are.
local function summary()
  return {
    nonce,
    version(),
    left(redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')[2]),
    left(redis.call('ZREVRANGE', index, 0, 0, 'WITHSCORES')[2]),
    redis.call('ZCARD', index),
  }
end

-- write id value [ttl lease [previous]]: without a ttl and a lease as an operator does; without previous over anything.
if verb == 'write' then
  local id, value, ttl, lease, previous = ARGV[4], ARGV[5], tonumber(ARGV[6] or '0'), ARGV[7] or '', ARGV[8]
  local owner = redis.call('EXISTS', record(id)) == 1 and redis.call('HGET', owners, id)
  local taken_over = false
  if previous then
    local stranger = owner and owner ~= lease and owner ~= previous
    local lost = redis.call('ZSCORE', taken, previous .. '/' .. id)
    if stranger or (lost and tonumber(lost) >= now) then
      return { nonce, 'superseded', owner or '' }
    end
  else
    taken_over = owner and owner ~= lease and lease ~= ''
  end
  -- Fails here for whoever may not write records, before anybody is told of one: no record has this key.
  redis.call('SET', record(''), '', 'XX')
  local revision = announce('put', id, ttl, value)
  if taken_over then
    -- Remembered as long as the former lease lives, which its owner prolongs by renewing.
    redis.call('ZADD', taken, redis.call('ZSCORE', index, id), owner .. '/' .. id)
  end
  redis.call('SET', record(id), value)
  if ttl > 0 then
    redis.call('PEXPIREAT', record(id), text(now + ttl))
    redis.call('ZADD', index, text(now + ttl), id)
  else
    redis.call('ZADD', index, 'inf', id)
  end
  if lease ~= '' then
    redis.call('HSET', owners, id, lease)
    redis.call('ZREM', taken, lease .. '/' .. id)
  else
    redis.call('HDEL', owners, id)
  end
  redis.call('ZADD', revisions, revision, id)
  tend()
  return { nonce, 'done', revision, redis.call('ZCARD', index) }
end

-- remove id [lease]: what the lease owns, or nobody; without a lease as an operator does, whoever owns it. Answers the version and
-- how many are left.
if verb == 'remove' then
  local id, lease = ARGV[4], ARGV[5]
  local owner = redis.call('HGET', owners, id)
  if redis.call('ZSCORE', index, id) and (not lease or not owner or owner == lease) then
    drop(id)
    tend()
  end
  return { nonce, version(), redis.call('ZCARD', index) }
end

-- renew lease ttl id...: answers the version, how many are left, and how many of the ids are held.
if verb == 'renew' then
  local lease, deadline, held = ARGV[4], text(now + tonumber(ARGV[5])), 0
  for n = 6, #ARGV do
    local id = ARGV[n]
    if redis.call('HGET', owners, id) == lease then
      local rest = redis.call('PTTL', record(id))
      if redis.call('TYPE', record(id)).ok ~= 'string' then
        drop(id) -- Deleted by hand, made something else, or its time has just passed.
      elseif rest == -1 then
        -- A plain SET by hand took the TTL away: the record is nobody's, and ends at its old deadline unless it is repaired.
        local ends = math.max(left(redis.call('ZSCORE', index, id)), 0)
        redis.call('ZADD', revisions, announce('put', id, ends, redis.call('GET', record(id))), id)
        redis.call('HDEL', owners, id)
      else
        redis.call('PEXPIREAT', record(id), deadline)
        redis.call('ZADD', index, deadline, id)
        held = held + 1
      end
    elseif redis.call('ZSCORE', taken, lease .. '/' .. id) then
      redis.call('ZADD', taken, deadline, lease .. '/' .. id)
    end
  end
  tend()
  return { nonce, version(), redis.call('ZCARD', index), held }
end

-- audit lease id...: answers the version, how many records there are, and which of the ids the lease holds, each with the version of its
-- last change.
if verb == 'audit' then
  local answer = { nonce, version(), redis.call('ZCARD', index) }
  for n = 5, #ARGV do
    if redis.call('HGET', owners, ARGV[n]) == ARGV[4] and redis.call('EXISTS', record(ARGV[n])) == 1 then
      answer[#answer + 1] = ARGV[n]
      answer[#answer + 1] = redis.call('ZSCORE', revisions, ARGV[n]) or '0'
    end
  end
  return answer
end

-- sweep: removes what is past its deadline; answers the summary and how many were removed.
if verb == 'sweep' then
  local removed = sweep()
  local answer = summary()
  if removed > 0 or answer[5] == 0 then
    tend()
  end
  answer[6] = removed
  return answer
end

-- version: answers it.
if verb == 'version' then
  return { nonce, version() }
end

-- purge id...: removes those of the ids whose record was deleted by hand, past the script. Answers the version, how many are left, and
-- which of the ids are still there.
if verb == 'purge' then
  local there = {}
  for n = 4, #ARGV do
    if redis.call('ZSCORE', index, ARGV[n]) then
      if redis.call('EXISTS', record(ARGV[n])) == 1 then
        there[#there + 1] = ARGV[n]
      else
        drop(ARGV[n])
      end
    end
  end
  tend()
  return { nonce, version(), redis.call('ZCARD', index), unpack(there) }
end

-- check skip: looks whether records without a deadline are still there, beginning after so many, and removes those that were deleted
-- by hand; the others end by themselves. Answers how many to skip the next time, 0 after the last.
if verb == 'check' then
  local skip, gone = tonumber(ARGV[4]), 0
  local some = redis.call('ZRANGEBYSCORE', index, '+inf', '+inf', 'LIMIT', skip, MOST)
  for _, id in ipairs(some) do
    if redis.call('EXISTS', record(id)) == 0 then
      drop(id)
      gone = gone + 1
    end
  end
  if gone > 0 then
    tend()
  end
  return { nonce, #some == MOST and skip + MOST - gone or 0, gone }
end

-- enlist (service version wait)...: the service had records at that version; look again after that many milliseconds, or earlier if
-- that was planned. looked does the same for whoever has just looked, and whose plan counts.
if verb == 'enlist' or verb == 'looked' then
  for n = 4, #ARGV, 3 do
    local service, seen, check = ARGV[n], ARGV[n + 1], now + tonumber(ARGV[n + 2])
    local known, planned = redis.call('HGET', owners, service), redis.call('ZSCORE', index, service)
    if not planned then
      redis.call('ZADD', revisions, announce('put', service, check - now, ''), service)
    end
    if not known or tonumber(known) < tonumber(seen) then
      redis.call('HSET', owners, service, seen)
    end
    if verb == 'looked' or not planned or tonumber(planned) > check then
      redis.call('ZADD', index, text(check), service)
    end
  end
  tend()
  return { nonce }
end

-- delist service version: the service had no record at that version; whoever saw one later is believed.
if verb == 'delist' then
  local known = redis.call('HGET', owners, ARGV[4])
  if redis.call('ZSCORE', index, ARGV[4]) and (not known or tonumber(known) <= tonumber(ARGV[5])) then
    drop(ARGV[4])
    tend()
  end
  return { nonce }
end

-- due: the services that have to be looked at; answers the summary and their names, and leaves them to the asker for a while.
if verb == 'due' then
  local past = redis.call('ZRANGEBYSCORE', index, '-inf', '(' .. text(now), 'LIMIT', 0, MOST)
  for _, service in ipairs(past) do
    redis.call('ZADD', index, text(now + AGAIN), service)
  end
  local answer = summary()
  if answer[5] == 0 then
    tend()
  end
  for _, service in ipairs(past) do
    answer[#answer + 1] = service
  end
  return answer
end

return redis.error_reply('ERR unknown verb')
