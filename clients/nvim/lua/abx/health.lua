--- :checkhealth abx
local client = require('abx.client')
local config = require('abx.config')
local place = require('abx.place')
local loop = vim.uv or vim.loop

local M = {}

-- How long the daemon may take to answer, and to start before, in milliseconds.
local LIMIT, START_LIMIT = 5000, 20000

-- The functions have other names since 0.9.
local function health()
  local it = vim.health or require('health')
  return {
    start = it.start or it.report_start,
    ok = it.ok or it.report_ok,
    info = it.info or it.report_info,
    warn = it.warn or it.report_warn,
    error = it.error or it.report_error,
  }
end

local function program(say)
  local abx = config.values.abx
  if vim.fn.executable(abx) == 0 then
    say.error(("there is no program '%s'"):format(abx), {
      "install abx, or name it: require('abx').setup { abx = '/path/to/abx' }",
    })
    return false
  end
  local out = vim.fn.system({ abx, '--no-autostart', '--version' })
  if vim.v.shell_error ~= 0 and not out:match('abx') then
    say.error(('%s --version: %s'):format(abx, vim.trim(out)))
    return false
  end
  say.ok(('%s: %s'):format(vim.fn.exepath(abx), vim.split(vim.trim(out), '\n')[1]))
  return true
end

local function engines(say, info)
  for _, engine in ipairs(info.engines or {}) do
    local line = ('engine %s: %s'):format(engine.name, engine.health)
    if engine.address then
      line = ('%s, %s'):format(line, engine.address)
    end
    if engine.health == 'ok' then
      say.ok(line .. (engine.version and (', version ' .. engine.version) or ''))
    else
      say.warn(line .. (engine.problem and (': ' .. engine.problem) or ''), {
        'start Docker or Podman; abxd finds it by itself. `abx doctor` says where it looked.',
      })
    end
  end
end

-- An error with its causes, in one text.
local function whole(err)
  local parts = { err.message }
  vim.list_extend(parts, err.causes or {})
  return table.concat(parts, ': ')
end

-- Looks at the daemon, which knows its engines; starts it if need be, as a command would, where `has_program` says that it
-- can.
local function daemon(say, has_program)
  local path = place.socket()
  say.info('socket: ' .. path)
  -- Also where a socket is left of a daemon that is gone.
  local starts = has_program and config.values.autostart
  if not loop.fs_stat(path) then
    if not has_program then
      say.info('no abxd runs there, and without abx none can be started')
      return
    end
    if not config.values.autostart then
      say.warn('no abxd runs there, and autostart is off: the engine was not looked at', {
        'start it: abx daemon start, or :Abx daemon start; then :checkhealth abx again',
      })
      return
    end
    say.info('no abxd ran there; it is started, as the first command would')
  end
  local done, err, info
  -- A daemon that has just begun still looks for its engines: it is asked again, a few times.
  local function ask(tries)
    client.request('daemon.info', nil, function(failed, result)
      for _, engine in ipairs(result and result.engines or {}) do
        if engine.health == 'checking' and tries > 0 then
          vim.defer_fn(function()
            ask(tries - 1)
          end, 200)
          return
        end
      end
      done, err, info = true, failed, result
    end)
  end
  local link = starts and client.ensure or client.look
  link(function(problem)
    if problem then
      done, err = true, problem
    else
      ask(20)
    end
  end)
  vim.wait(starts and START_LIMIT + LIMIT or LIMIT, function()
    return done
  end, 10)
  if not done then
    say.error('abxd does not answer', { 'restart it: abx daemon restart' })
    return
  end
  if err then
    say.error(whole(err), { err.hint or 'run: abx doctor' })
    return
  end
  say.ok(('abxd %s (process %d, protocol %d), %d sessions'):format(info.version, info.pid, info.protocol, info.sessions))
  for _, notice in ipairs(info.notices or {}) do
    say.warn(notice)
  end
  engines(say, info)
end

function M.check()
  local say = health()
  say.start('abx: editor')
  if vim.fn.has('nvim-0.7') == 1 then
    say.ok('Neovim is new enough')
  else
    say.error('Neovim 0.7 or newer is needed')
  end
  say.start('abx: program')
  local has_program = program(say)
  say.start('abx: daemon')
  daemon(say, has_program)
end

return M
