--- What a user's own configuration may call. Nothing here waits: results come to callbacks, `callback(error, result)`.
---
--- Without a callback a failure is shown, and so is success where it cannot be seen otherwise.
local client = require('abx.client')
local config = require('abx.config')
local place = require('abx.place')
local text = require('abx.text')

local M = {}

local function say(message, level)
  vim.notify(message, level or vim.log.levels.INFO, { title = 'abx' })
end

-- Whether nobody put something of their own in the place of Neovim's vim.notify.
local function notify_is_plain()
  return debug.getinfo(vim.notify, 'S').source:match('vim/_editor%.lua$') ~= nil
end

--- Shows an error of abx.
function M.show_error(err)
  local message = text.failure(err)
  if notify_is_plain() then
    -- Neovim 0.7 writes errors line by line, and the last of three or more, the hint, is never seen.
    vim.api.nvim_echo({ { message, 'ErrorMsg' } }, true, {})
  else
    say(message, vim.log.levels.ERROR)
  end
end

-- Gives the result to the caller, or tells the user.
local function finish(callback, done)
  return function(err, result)
    if callback then
      callback(err, result)
    elseif err then
      M.show_error(err)
    elseif done then
      say(done(result))
    end
  end
end

local ended

-- Says that an agent wants its user, once for each time that it begins to.
local function follow_attention()
  if ended then
    ended()
  end
  ended = client.on('attention', function(session)
    if not config.values.notify_attention then
      return
    end
    -- What a deletion, a stop or a save ends is not done: whoever asked for that knows.
    local cut_short = vim.tbl_contains({ 'delete', 'stop', 'save' }, session.operation)
    if session.attention == 'waiting' or (session.attention == 'done' and not cut_short) then
      local note = session.attention_note and (': ' .. text.clean(session.attention_note)) or ''
      local what = session.attention == 'waiting' and 'waits for you' or 'is done'
      say(('%s %s%s'):format(session.name, what, note), vim.log.levels.WARN)
    end
  end)
end

local status_used = false
client.on('sessions', function()
  if status_used then
    vim.cmd('redrawstatus!')
  end
  pcall(vim.api.nvim_exec_autocmds, 'User', { pattern = 'AbxSessions', modeline = false })
end)
client.on('state', function()
  if status_used then
    vim.cmd('redrawstatus!')
  end
end)
follow_attention()

--- Changes settings; see :help abx-settings. May be called again.
function M.setup(settings)
  config.set(settings)
  client.reset()
  if config.values.connect then
    client.look(function() end)
  end
end

--- The sessions as last listed, newest first: tables with the fields of the protocol.
function M.sessions()
  return client.sessions()
end

--- Their names.
function M.names()
  return vim.tbl_map(function(session)
    return session.name
  end, client.sessions())
end

--- Calls `callback` from now on; `what` is 'sessions', 'event', 'state' or 'attention'. Gives a function that ends it.
M.on = client.on

--- Any method of the daemon.
M.request = client.request

--- Asks for the sessions now.
M.refresh = client.refresh

--- Parameters of `session.start` for a mounted directory.
function M.workspace(given)
  local source, rest = given:match('^([^:]*):?(.*)$')
  local read_only = false
  if rest == 'ro' then
    rest, read_only = '', true
  elseif rest:match(':ro$') then
    rest, read_only = rest:sub(1, -4), true
  end
  return { source = place.absolute(source == '' and '.' or source), target = rest, read_only = read_only }
end

--- Starts a session. `options` has fields of `session.start`; `workspace` may be DIR[:TARGET][:ro].
function M.start(name, options, callback)
  local params = vim.tbl_extend('force', vim.deepcopy(config.values.start), options or {}, { name = name })
  if params.workspace == nil and config.values.workspace then
    params.workspace = '.'
  end
  if type(params.workspace) == 'string' then
    params.workspace = M.workspace(params.workspace)
  end
  client.operate('session.start', name, params, finish(callback, function(session)
    return ("Session '%s' started"):format(session.name)
  end))
end

--- Stops a session; its files stay.
function M.stop(name, callback)
  client.request('session.stop', { name = name }, finish(callback, function()
    return ("Session '%s' stopped"):format(name)
  end))
end

--- Saves a session. `options`: snapshot, note, keep_running.
function M.save(name, options, callback)
  local params = vim.tbl_extend('force', options or {}, { name = name })
  client.operate('session.save', name, params, finish(callback, function(result)
    return ("Session '%s' saved (snapshot: %s)"):format(name, result.snapshot.name)
  end))
end

--- Resumes a session. `options`: snapshot.
function M.resume(name, options, callback)
  local params = vim.tbl_extend('force', options or {}, { name = name })
  client.operate('session.resume', name, params, finish(callback, function()
    return ("Session '%s' resumed"):format(name)
  end))
end

--- Makes a new session from a snapshot of this one, or from one taken now. `options`: snapshot.
function M.fork(name, new_name, options, callback)
  local params = vim.tbl_extend('force', options or {}, { name = name, new_name = new_name })
  client.operate('session.fork', name, params, finish(callback, function()
    return ("Session '%s' forked to '%s'"):format(name, new_name)
  end))
end

--- Deletes a session without a question. `options`: keep_snapshots.
function M.delete(name, options, callback)
  local params = vim.tbl_extend('force', options or {}, { name = name })
  client.request('session.delete', params, finish(callback, function(result)
    local with = #result.snapshots > 0 and (', and ' .. table.concat(result.snapshots, ', ')) or ''
    return ("Session '%s' deleted%s"):format(result.deleted, with)
  end))
end

--- Gives a session another name.
function M.rename(name, new_name, callback)
  client.request('session.rename', { name = name, new_name = new_name }, finish(callback, function()
    return ("Session '%s' is now '%s'"):format(name, new_name)
  end))
end

--- Freezes a session.
function M.pause(name, callback)
  client.request('session.pause', { name = name }, finish(callback, function()
    return ("Session '%s' paused"):format(name)
  end))
end

--- Thaws a session.
function M.unpause(name, callback)
  client.request('session.unpause', { name = name }, finish(callback, function()
    return ("Session '%s' runs again"):format(name)
  end))
end

--- Opens a terminal of a session in a window, resuming the session if it does not run; see :help abx.attach().
function M.attach(name, options, callback)
  require('abx.attach').open(name, options or {}, callback)
end

--- Opens the list.
function M.list()
  require('abx.list').open()
end

--- Opens the events.
function M.events(name)
  require('abx.events').open(name)
end

--- Sessions whose agent waits for its user.
function M.attention()
  return vim.tbl_filter(function(session)
    return session.attention == 'waiting'
  end, client.sessions())
end

--- For a status line: how many sessions run, and who waits for you. Empty without a daemon and without sessions.
function M.statusline()
  status_used = true
  local phase = client.phase()
  local all = client.sessions()
  if phase == 'lost' then
    return 'abx: away'
  end
  if phase ~= 'ready' or #all == 0 then
    return ''
  end
  local running, waiting, finished = 0, {}, 0
  for _, session in ipairs(all) do
    if session.status == 'running' then
      running = running + 1
    end
    if session.attention == 'waiting' then
      waiting[#waiting + 1] = session.name
    elseif session.attention == 'done' then
      finished = finished + 1
    end
  end
  local parts = { ('abx: %d/%d'):format(running, #all) }
  if #waiting > 0 then
    local who = waiting[1] .. (#waiting > 1 and (' +%d'):format(#waiting - 1) or '')
    parts[#parts + 1] = who .. ' waits'
  end
  if finished > 0 then
    parts[#parts + 1] = finished .. ' done'
  end
  -- A percent sign has a meaning in a status line.
  local out = table.concat(parts, ', '):gsub('%%', '%%%%')
  return out
end

return M
