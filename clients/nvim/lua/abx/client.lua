--- The editor's one link to the daemon: connects, starts it when asked to, comes back after a restart, and keeps the table
--- of sessions as the daemon has it.
---
--- Events are hints: whenever one says that a session changed, the list is asked for again, once at a time.
local config = require('abx.config')
local connection = require('abx.connection')
local place = require('abx.place')
local loop = vim.uv or vim.loop

local M = {}

-- The protocol that this client speaks.
M.PROTOCOL = 1
M.VERSION = '0.1.0'

-- How long the daemon may take to answer all that makes the link, in milliseconds; it does so at once.
M.ANSWER_LIMIT = 10000

-- How long `abx daemon start` may take, in milliseconds; it gives up by itself after ten seconds.
local START_LIMIT = 20000

-- First and longest pause between two attempts to come back, in milliseconds.
local PAUSE_FIRST, PAUSE_LONGEST = 100, 5000

-- How long changes are gathered before the list is asked for again, in milliseconds.
local GATHER = 30

local state

local function fresh_state()
  return {
    phase = 'off', -- off, connecting, ready, lost
    sessions = {},
    loaded = false,
    progress = {},
    waiting = {},
    ops = 0,
    pause = PAUSE_FIRST,
  }
end

state = fresh_state()

local listeners = { sessions = {}, event = {}, state = {}, attention = {} }

--- Calls `callback` from now on. `what` is 'sessions' (the table changed), 'event' (each event), 'state' (of the
--- connection) or 'attention' (an agent's attention changed: session, before). Gives a function that ends it.
function M.on(what, callback)
  local list = assert(listeners[what], 'abx: nothing is called ' .. tostring(what))
  list[callback] = true
  return function()
    list[callback] = nil
  end
end

local function tell(what, ...)
  -- One that is told may end itself or others.
  for _, callback in ipairs(vim.tbl_keys(listeners[what])) do
    local ok, err = pcall(callback, ...)
    if not ok then
      vim.notify('abx: ' .. tostring(err), vim.log.levels.ERROR)
    end
  end
end

local function set_phase(phase, problem)
  state.phase, state.problem = phase, problem
  tell('state', phase, problem)
end

--- 'off', 'connecting', 'ready' or 'lost', and what is wrong, if anything is.
function M.phase()
  return state.phase, state.problem
end

--- What the daemon said of itself, once connected.
function M.server()
  return state.server
end

--- The sessions, newest first, as the daemon listed them last.
function M.sessions()
  return state.sessions
end

--- Whether they have been listed since the editor was started.
function M.loaded()
  return state.loaded
end

--- The session of this name, or of this sandbox.
function M.find(name)
  for _, session in ipairs(state.sessions) do
    if session.name == name then
      return session
    end
  end
  for _, session in ipairs(state.sessions) do
    if session.sandbox == name then
      return session
    end
  end
end

--- The line that an operation on this session said last.
function M.progress(name)
  return state.progress[name]
end

--- The newest event that was seen; what comes after it is asked for after a restart of the daemon.
function M.last_event()
  return state.seq
end

--- Takes a list as the newest.
function M.take(list)
  local before = {}
  for _, session in ipairs(state.sessions) do
    before[session.id] = session
  end
  local first = not state.loaded
  state.sessions, state.loaded = list, true
  tell('sessions', list)
  for _, session in ipairs(list) do
    local old = before[session.id]
    local was = old and old.attention
    if not first and session.attention ~= was then
      tell('attention', session, was)
    end
  end
end

--- Asks for the list again; `callback(error, sessions)`. Calls while one is under way are answered by the next one.
function M.refresh(callback)
  if callback then
    state.refresh_waiting = state.refresh_waiting or {}
    table.insert(state.refresh_waiting, callback)
  end
  if state.refreshing then
    state.refresh_again = true
    return
  end
  if state.phase ~= 'ready' then
    return M.ensure(function(err)
      if err then
        local waiting = state.refresh_waiting or {}
        state.refresh_waiting = nil
        for _, each in ipairs(waiting) do
          each(err)
        end
      elseif state.refresh_waiting then
        M.refresh()
      end
    end)
  end
  state.refreshing, state.refresh_again = true, false
  local waiting = state.refresh_waiting or {}
  state.refresh_waiting = nil
  state.conn:request('session.list', nil, function(err, list)
    state.refreshing = false
    if not err then
      M.take(list)
    end
    for _, each in ipairs(waiting) do
      each(err, list)
    end
    if (state.refresh_again or state.refresh_waiting) and state.phase == 'ready' then
      M.refresh()
    end
  end)
end

local function refresh_soon()
  if state.soon then
    return
  end
  state.soon = true
  local mine = state
  vim.defer_fn(function()
    mine.soon = false
    if mine == state and state.phase == 'ready' then
      M.refresh()
    end
  end, GATHER)
end

local function subscribe(callback)
  state.conn:request('event.subscribe', { since = state.seq }, function(err, id)
    -- A daemon without events is of use all the same: the list is asked for after each command. One that refuses them
    -- has some, and a link without them would look alive and miss all that happens.
    state.subscription = id
    callback(err and err.kind ~= 'method_not_found' and err or nil)
  end)
end

local connect, give_up, limited

local function event(params)
  if params.kind == 'progress' then
    local step = params.data
    local name = step.op and state.op_names and state.op_names[step.op]
    if name then
      state.progress[name] = step.text
      tell('sessions', state.sessions)
    end
    tell('event', params)
    return
  end
  if params.kind == 'subscribed' then
    state.seq = params.seq
    refresh_soon()
    if type(params.data) == 'table' and (tonumber(params.data.missed) or 0) > 0 then
      tell('event', params)
    end
    return
  end
  if params.kind == 'lagged' then
    -- The subscription is closed; another one goes on from what was seen, and the list is the truth.
    local conn = state.conn
    local answered = limited(conn)
    subscribe(function(err)
      answered()
      if err then
        give_up(conn, err)
      end
    end)
    refresh_soon()
    return
  end
  if params.seq then
    state.seq = math.max(state.seq or 0, params.seq)
  end
  refresh_soon()
  tell('event', params)
end

local function come_back()
  if state.timer then
    return
  end
  local mine = state
  state.timer = vim.defer_fn(function()
    mine.timer = nil
    if mine == state and state.phase == 'lost' then
      connect(false)
    end
  end, state.pause)
  state.pause = math.min(state.pause * 2, PAUSE_LONGEST)
end

local function settle(err)
  local waiting = state.waiting
  state.waiting = {}
  for _, each in ipairs(waiting) do
    each(err)
  end
end

local function failed(err)
  -- Whoever was connected once wants to be again; it costs one look at a socket every few seconds.
  set_phase(state.server and 'lost' or 'off', err)
  if state.phase == 'lost' then
    come_back()
  end
  settle(err)
end

-- Ends the connection for a reason better than its end. One that has ended has told its own.
give_up = function(conn, err)
  if conn.closed then
    return
  end
  state.quiet_close = true
  conn:close()
  state.conn, state.refreshing = nil, false
  failed(err)
end

-- Gives the connection up as one that does not answer, unless what this gives is called in time.
limited = function(conn)
  local answered = false
  vim.defer_fn(function()
    if not answered then
      give_up(conn, {
        kind = 'daemon_unreachable',
        message = 'abxd does not answer',
        hint = 'run: abx daemon restart',
      })
    end
  end, M.ANSWER_LIMIT)
  return function()
    answered = true
  end
end

-- Greets, follows events, and gets the list; then the link is ready.
local function greet(conn)
  state.conn = conn
  local answered = limited(conn)
  local hello = { client = 'nvim', version = M.VERSION, protocol = M.PROTOCOL }
  conn:request('daemon.hello', hello, function(err, server)
    if err then
      give_up(conn, err)
      return
    end
    if server.protocol ~= M.PROTOCOL then
      give_up(conn, {
        kind = 'protocol',
        message = ('abxd %s speaks protocol %d, this client %d'):format(server.version, server.protocol, M.PROTOCOL),
        hint = 'bring the older of the two up to date; then: abx daemon restart',
      })
      return
    end
    state.server = server
    subscribe(function(sub_err)
      if sub_err then
        give_up(conn, sub_err)
        return
      end
      conn:request('session.list', nil, function(list_err, list)
        if list_err then
          give_up(conn, list_err)
          return
        end
        answered()
        state.pause = PAUSE_FIRST
        state.progress = {}
        set_phase('ready')
        M.take(list)
        settle()
      end)
    end)
  end)
end

--- Starts the daemon; `callback(error)`.
function M.start_daemon(callback)
  local argv = place.argv('daemon', 'start', '--json')
  if vim.fn.executable(argv[1]) == 0 then
    callback({
      kind = 'no_abx',
      message = ("there is no program '%s'"):format(argv[1]),
      hint = "install abx, or name it: require('abx').setup { abx = '/path/to/abx' }",
    })
    return
  end
  local out, errors = {}, {}
  local timer
  local function collect(into)
    return function(_, lines)
      vim.list_extend(into, lines)
    end
  end
  local job = vim.fn.jobstart(argv, {
    stdout_buffered = true,
    stderr_buffered = true,
    on_stdout = collect(out),
    on_stderr = collect(errors),
    on_exit = vim.schedule_wrap(function(_, code)
      if timer and not timer:is_closing() then
        timer:close()
      end
      if code == 0 then
        callback()
        return
      end
      local ok, said = pcall(vim.json.decode, table.concat(out, '\n'), { luanil = { object = true } })
      local data = ok and type(said) == 'table' and said.data or {}
      local words = vim.trim(table.concat(errors, '\n'))
      callback({
        kind = 'daemon_unreachable',
        message = ok and type(said) == 'table' and said.message
          or ('abxd did not start: %s'):format(words ~= '' and words or ('abx ended with ' .. code)),
        hint = data.hint or 'run: abx doctor',
        causes = data.causes or {},
      })
    end),
  })
  if job <= 0 then
    callback({ kind = 'no_abx', message = ("cannot run '%s'"):format(argv[1]), hint = 'run :checkhealth abx' })
    return
  end
  timer = loop.new_timer()
  timer:start(START_LIMIT, 0, vim.schedule_wrap(function()
    if not timer:is_closing() then
      timer:close()
    end
    vim.fn.jobstop(job)
  end))
end

connect = function(may_start)
  if state.phase == 'connecting' then
    -- A command that came while the link only looked wants the daemon started.
    state.may_start = state.may_start or may_start
    return
  end
  state.may_start = may_start
  state.quiet_close = false
  set_phase('connecting')
  local mine = state
  local handlers = {
    notification = function(method, params)
      if mine == state and method == 'event' then
        event(params)
      end
    end,
    close = function()
      if mine ~= state or state.quiet_close then
        return
      end
      state.conn, state.refreshing, state.soon = nil, false, false
      state.server = state.server or {}
      failed({ kind = 'disconnected', message = 'abxd closed the connection' })
    end,
  }
  local function attempt(started)
    connection.open(place.socket(), handlers, function(err, conn)
      if mine ~= state then
        if conn then
          conn:drop()
        end
        return
      end
      if conn then
        greet(conn)
        return
      end
      if started or err.foreign or not state.may_start then
        err.hint = err.hint or 'run: abx daemon start'
        failed(err)
        return
      end
      M.start_daemon(function(start_err)
        if mine ~= state then
          return
        end
        if start_err then
          failed(start_err)
        else
          attempt(true)
        end
      end)
    end)
  end
  attempt(false)
end

--- Connects if need be, starting the daemon where the settings allow it; `callback(error)` when the link is ready or cannot
--- be made.
function M.ensure(callback)
  if state.phase == 'ready' then
    callback()
    return
  end
  table.insert(state.waiting, callback)
  connect(config.values.autostart)
end

--- Connects if a daemon runs, and says nothing if none does.
function M.look(callback)
  if state.phase == 'ready' then
    if callback then
      callback()
    end
    return
  end
  if callback then
    table.insert(state.waiting, callback)
  end
  connect(false)
end

--- Makes a call on a link that is made for it if need be; `callback(error, result)`.
function M.request(method, params, callback)
  callback = callback or function() end
  M.ensure(function(err)
    if err then
      callback(err)
      return
    end
    local mine = state
    state.conn:request(method, params, function(failure, result)
      -- A daemon that tells no events is asked what became of it.
      if mine == state and not state.subscription and method:match('^session%.') then
        refresh_soon()
      end
      callback(failure, result)
    end)
  end)
end

--- As request, for a method that tells its progress, which is shown with the session `name`.
function M.operate(method, name, params, callback)
  state.ops = state.ops + 1
  local mine = state
  local op = ('nvim-%d-%d'):format(loop.os_getpid(), state.ops)
  state.op_names = state.op_names or {}
  state.op_names[op] = name
  params = vim.tbl_extend('force', params, { op = op })
  M.request(method, params, function(err, result)
    if mine == state then
      state.op_names[op] = nil
      state.progress[name] = nil
      refresh_soon()
    end
    callback(err, result)
  end)
end

--- Ends the link and forgets everything; used when settings change, and by tests.
function M.reset()
  local old = state
  state = fresh_state()
  if old.conn then
    old.conn:close()
  end
  for _, each in ipairs(old.waiting) do
    each({ kind = 'disconnected', message = 'the link to abxd was ended' })
  end
  tell('state', 'off')
end

return M
