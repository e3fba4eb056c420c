--- Terminals of sessions in terminal buffers: `abx attach` does the work, so that keys, sizes, reconnecting and detaching
--- are those of the command line.
local client = require('abx.client')
local config = require('abx.config')
local place = require('abx.place')
local window = require('abx.window')

local M = {}

-- Buffers by session id and terminal.
local open = {}

local function alive(buffer)
  return buffer and vim.api.nvim_buf_is_valid(buffer) and vim.b[buffer].abx_job ~= nil
end

--- The command line, for tests and for those who open terminals in their own way.
function M.argv(name, options)
  local argv = place.argv('attach', '--terminal', options.terminal or 'main')
  local function add(...)
    vim.list_extend(argv, { ... })
  end
  if options.agent then
    add('--agent')
  end
  if options.fresh then
    add('--fresh')
  end
  if options.read_only then
    add('--read-only')
  end
  local keys = options.detach_keys or config.values.attach.detach_keys
  if keys then
    add('--detach-keys', keys)
  end
  local scrollback = options.scrollback or config.values.attach.scrollback
  if scrollback and scrollback > 0 then
    add('--scrollback', tostring(scrollback))
  end
  add(name)
  if options.cmd and #options.cmd > 0 then
    add('--')
    vim.list_extend(argv, options.cmd)
  end
  return argv
end

local function run(argv, options)
  if vim.fn.has('nvim-0.11') == 1 then
    options.term = true
    return vim.fn.jobstart(argv, options)
  end
  return vim.fn.termopen(argv, options)
end

local function show(session, options)
  local terminal = options.terminal or 'main'
  local key = session.id .. '/' .. terminal
  local how = options.open or config.values.attach.open
  if alive(open[key]) then
    window.show(open[key], how)
    vim.cmd('startinsert')
    return open[key]
  end
  window.make(how)
  local buffer = vim.api.nvim_create_buf(true, false)
  vim.api.nvim_win_set_buf(0, buffer)
  local close = config.values.attach.close
  local job = run(M.argv(session.name, options), {
    on_exit = function(_, code)
      if open[key] == buffer then
        open[key] = nil
      end
      if not vim.api.nvim_buf_is_valid(buffer) then
        return
      end
      vim.b[buffer].abx_job = nil
      if code == 0 and close then
        vim.api.nvim_buf_delete(buffer, { force = true })
      end
    end,
  })
  if job <= 0 then
    vim.api.nvim_buf_delete(buffer, { force = true })
    return nil, {
      kind = 'no_abx',
      message = ("cannot run '%s'"):format(config.values.abx),
      hint = 'run :checkhealth abx',
    }
  end
  open[key] = buffer
  vim.b[buffer].abx_job = job
  vim.b[buffer].abx_session = session.name
  vim.b[buffer].abx_terminal = terminal
  local name = ('abx://%s/%s'):format(session.name, terminal)
  if vim.fn.bufexists(name) == 0 then
    pcall(vim.api.nvim_buf_set_name, buffer, name)
  end
  vim.bo[buffer].bufhidden = 'hide'
  vim.cmd('startinsert')
  return buffer
end

--- Opens a terminal; `callback(error, buffer)`.
---
--- `options`: terminal (a name), cmd (a list), agent, fresh, read_only, detach_keys, scrollback, open.
function M.open(name, options, callback)
  local origin = vim.api.nvim_get_current_win()
  local function finish(err, buffer)
    if callback then
      callback(err, buffer)
    elseif err then
      require('abx').show_error(err)
    end
  end
  if vim.fn.executable(config.values.abx) == 0 then
    finish({
      kind = 'no_abx',
      message = ("there is no program '%s'"):format(config.values.abx),
      hint = "install abx, or name it: require('abx').setup { abx = '/path/to/abx' }",
    })
    return
  end
  client.request('session.connect', { name = name }, function(err, session)
    if err then
      finish(err)
      return
    end
    -- A resume may have taken a while: the terminal belongs where the user asked for it.
    if vim.api.nvim_win_is_valid(origin) and vim.fn.mode() ~= 'c' then
      vim.api.nvim_set_current_win(origin)
    end
    local buffer, problem = show(session, options)
    finish(problem, buffer)
  end)
end

--- Leaves the terminal of a buffer; what runs in it goes on. False where there is none.
function M.detach(buffer)
  local job = alive(buffer) and vim.b[buffer].abx_job
  if not job then
    return false
  end
  vim.b[buffer].abx_job = nil
  vim.fn.jobstop(job)
  if config.values.attach.close then
    vim.api.nvim_buf_delete(buffer, { force = true })
  end
  return true
end

return M
