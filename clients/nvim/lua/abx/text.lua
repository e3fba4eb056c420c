--- How things are written for people.
local M = {}

--- One line, without what would move a cursor: notes and errors may come from inside a sandbox.
function M.clean(text)
  local out = tostring(text or ''):gsub('%c+', ' ')
  return out
end

--- An error as the user reads it.
function M.failure(err)
  local lines = { 'abx: ' .. M.clean(err.message) }
  for _, cause in ipairs(err.causes or {}) do
    lines[#lines + 1] = 'Caused by: ' .. M.clean(cause)
  end
  if err.hint then
    lines[#lines + 1] = 'Hint: ' .. M.clean(err.hint)
  elseif err.kind == 'engine_unavailable' then
    lines[#lines + 1] = 'Hint: start Docker or Podman, then try again; :checkhealth abx says what abx found'
  end
  return table.concat(lines, '\n')
end

--- Seconds since 1970 of a time of the daemon's.
function M.seconds(time)
  local y, mo, d, h, mi, s = tostring(time):match('^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)')
  if not y then
    return nil
  end
  y, mo, d = tonumber(y), tonumber(mo), tonumber(d)
  -- Days from the civil calendar; os.time would read it in the local zone, which may have summer time.
  if mo <= 2 then
    y, mo = y - 1, mo + 12
  end
  local era = math.floor(y / 400)
  local of_era = y - era * 400
  local of_year = math.floor((153 * (mo - 3) + 2) / 5) + d - 1
  local days = era * 146097 + of_era * 365 + math.floor(of_era / 4) - math.floor(of_era / 100) + of_year - 719468
  return days * 86400 + h * 3600 + mi * 60 + s
end

--- `45s`, `12m`, `2h 14m`, `3d`, as `abx ls` has it.
function M.duration(seconds)
  seconds = math.max(0, math.floor(seconds))
  if seconds < 60 then
    return seconds .. 's'
  elseif seconds < 3600 then
    return math.floor(seconds / 60) .. 'm'
  elseif seconds < 86400 then
    local minutes = math.floor(seconds % 3600 / 60)
    local hours = math.floor(seconds / 3600) .. 'h'
    return minutes == 0 and hours or ('%s %dm'):format(hours, minutes)
  end
  return math.floor(seconds / 86400) .. 'd'
end

--- How long a session exists.
function M.age(session)
  local at = M.seconds(session.created_at)
  return at and M.duration(os.time() - at) or ''
end

--- Milliseconds of `30m`, `2h`, `3d`, `45s`, or a number of seconds; nil if it is none.
function M.milliseconds(text)
  local number, unit = tostring(text):match('^(%d+)([smhd]?)$')
  local units = { [''] = 1, s = 1, m = 60, h = 3600, d = 86400 }
  return number and tonumber(number) * units[unit] * 1000
end

--- Fills with spaces, or cuts, to a width of the screen.
function M.pad(text, width)
  local is = vim.fn.strdisplaywidth(text)
  if is > width then
    while text ~= '' and vim.fn.strdisplaywidth(text) > width - 1 do
      text = vim.fn.strcharpart(text, 0, vim.fn.strchars(text) - 1)
    end
    text = text .. '…'
    is = vim.fn.strdisplaywidth(text)
  end
  return text .. (' '):rep(width - is)
end

--- The state in one word, with what is being done to it right now.
function M.status(session)
  local status = M.clean(session.status)
  if session.operation and session.operation ~= 'start' then
    return ('%s (%s)'):format(status, M.clean(session.operation))
  end
  if session.status == 'stopped' and session.reason and session.reason ~= 'user' then
    return ('%s (%s)'):format(status, M.clean(session.reason))
  end
  return status
end

--- What the session's agent does, with its words.
function M.attention(session)
  if not session.attention then
    return ''
  end
  local note = session.attention_note
  return M.clean(session.attention) .. (note and note ~= '' and (': ' .. M.clean(note)) or '')
end

--- An event in one line.
function M.event(event)
  if event.kind == 'subscribed' then
    -- Told only where something is missing before it.
    return ('%d events are no longer kept'):format(event.data.missed)
  end
  local parts = { M.clean(event.at):match('T(%d+:%d+:%d+)') or '', M.clean(event.kind) }
  if event.session then
    parts[#parts + 1] = M.clean(event.session)
  end
  local data = type(event.data) == 'table' and event.data or {}
  if data.from and data.to then
    parts[#parts + 1] = ('%s -> %s'):format(M.clean(data.from), M.clean(data.to))
  end
  local known = { from = true, to = true }
  local rest = {}
  for key, value in pairs(data) do
    if not known[key] and value ~= vim.NIL then
      if type(value) == 'table' then
        value = vim.json.encode(value)
      end
      rest[#rest + 1] = ('%s=%s'):format(M.clean(key), M.clean(value))
    end
  end
  table.sort(rest)
  vim.list_extend(parts, rest)
  if event.by then
    parts[#parts + 1] = ('by %s%s'):format(M.clean(event.by.client), event.by.pid and (' ' .. event.by.pid) or '')
  end
  return table.concat(parts, '  ')
end

return M
