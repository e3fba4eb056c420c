--- One connection to the daemon: JSON-RPC 2.0, one message a line, on a pipe of the editor's own loop.
---
--- Knows nothing of sessions. Callbacks run where the whole of the editor's API may be used, in the order of the messages.
local place = require('abx.place')
local loop = vim.uv or vim.loop

local M = {}

local Connection = {}
Connection.__index = Connection

-- How long a daemon may take to accept, in milliseconds. It accepts at once; one that does not is stuck.
local CONNECT_LIMIT = 5000

-- The code of JSON-RPC for it, which a daemon may send without a kind of its own.
local METHOD_NOT_FOUND = -32601

local NULLS = { luanil = { object = true, array = true } }

--- Connects, and calls `done(error)` or `done(nil, connection)`.
---
--- `on.notification(method, params)` is called for each notification, and `on.close()` once, after the callbacks of
--- all requests that were under way.
function M.open(path, on, done)
  local self = setmetatable({
    pipe = loop.new_pipe(false),
    on = on,
    next_id = 1,
    waiting = {},
    parts = {},
  }, Connection)
  local timer = loop.new_timer()
  local settled = false
  local settle = vim.schedule_wrap(function(err, foreign)
    if settled then
      return
    end
    settled = true
    timer:stop()
    timer:close()
    if foreign then
      self:drop()
      done({
        kind = 'daemon_unreachable',
        message = foreign,
        hint = "use a home of your own: require('abx').setup { home = '...' }, or ABX_HOME",
        foreign = true,
      })
    elseif err then
      self:drop()
      done({ kind = 'daemon_unreachable', message = ('nobody answers on %s (%s)'):format(path, err), system = err })
    else
      done(nil, self)
    end
  end)
  timer:start(CONNECT_LIMIT, 0, function()
    settle('ETIMEDOUT: it does not accept')
  end)
  local ok, failed = pcall(function()
    assert(self.pipe:connect(path, function(err)
      -- Before anything is sent: it has secrets in it.
      local foreign = not err and place.foreign(path)
      if foreign then
        settle(nil, foreign)
        return
      end
      if not err then
        self.pipe:read_start(function(read_err, chunk)
          self:read(read_err, chunk)
        end)
      end
      settle(err)
    end))
  end)
  if not ok then
    settle(tostring(failed))
  end
end

-- Runs in the loop's callback: cuts lines, and leaves the rest to the main loop.
function Connection:read(err, chunk)
  if err or not chunk then
    vim.schedule(function()
      self:close()
    end)
    return
  end
  local from = 1
  while true do
    local to = chunk:find('\n', from, true)
    if not to then
      break
    end
    self.parts[#self.parts + 1] = chunk:sub(from, to - 1)
    local line = table.concat(self.parts)
    self.parts = {}
    from = to + 1
    vim.schedule(function()
      self:line(line)
    end)
  end
  if from <= #chunk then
    self.parts[#self.parts + 1] = chunk:sub(from)
  end
end

function Connection:line(line)
  local ok, message = pcall(vim.json.decode, line, NULLS)
  if not ok or type(message) ~= 'table' then
    return
  end
  if message.method then
    self.on.notification(message.method, message.params or {})
    return
  end
  local callback = message.id and self.waiting[message.id]
  if not callback then
    return
  end
  self.waiting[message.id] = nil
  local failed = message.error
  if failed then
    local data = failed.data or {}
    if data.kind == 'shutting_down' and data.begun == false then
      callback(self.unbegun(failed.code))
      return
    end
    callback({
      code = failed.code,
      kind = data.kind or (failed.code == METHOD_NOT_FOUND and 'method_not_found') or 'internal',
      message = failed.message,
      hint = data.hint,
      causes = data.causes or {},
    })
  else
    callback(nil, message.result)
  end
end

--- Makes a call; `callback(error, result)` runs once, also when the connection ends first.
function Connection:request(method, params, callback)
  if self.closed then
    vim.schedule(function()
      callback(self.gone())
    end)
    return
  end
  local id = self.next_id
  self.next_id = id + 1
  self.waiting[id] = callback
  local message = { jsonrpc = '2.0', id = id, method = method }
  if params and next(params) ~= nil then
    message.params = params
  end
  self.pipe:write(vim.json.encode(message) .. '\n', function(err)
    if err then
      vim.schedule(function()
        self:close()
      end)
    end
  end)
end

--- The error of a request whose connection ended.
function Connection.gone()
  return {
    kind = 'disconnected',
    message = 'abxd closed the connection before it answered',
    hint = 'what was begun goes on; look at the list',
  }
end

--- The error of a request that a daemon refused which stops.
function Connection.unbegun(code)
  return {
    code = code,
    kind = 'shutting_down',
    message = 'abxd is stopping, and has begun nothing',
    hint = 'do it again: the next abxd is asked',
    causes = {},
  }
end

function Connection:drop()
  self.closed = true
  if not self.pipe:is_closing() then
    self.pipe:close()
  end
end

--- Ends the connection. Doing it again changes nothing.
function Connection:close()
  if self.closed then
    return
  end
  self:drop()
  local waiting = self.waiting
  self.waiting = {}
  for _, callback in pairs(waiting) do
    callback(self.gone())
  end
  self.on.close()
end

return M
