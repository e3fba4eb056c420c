--- :checkhealth abx
local client = require('abx.client')
local config = require('abx.config')
local place = require('abx.place')
local loop = vim.uv or vim.loop

local M = {}

-- How long the daemon may take to answer, in milliseconds.
local LIMIT = 5000

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
    return
  end
  local out = vim.fn.system({ abx, '--no-autostart', '--version' })
  if vim.v.shell_error ~= 0 and not out:match('abx') then
    say.error(('%s --version: %s'):format(abx, vim.trim(out)))
    return
  end
  say.ok(('%s: %s'):format(vim.fn.exepath(abx), vim.split(vim.trim(out), '\n')[1]))
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

local function daemon(say)
  local path = place.socket()
  say.info('socket: ' .. path)
  if not loop.fs_stat(path) then
    say.info('no abxd runs there' .. (config.values.autostart and '; the first command starts it' or ''))
    if not config.values.autostart then
      say.warn('autostart is off', { 'start it: abx daemon start, or :Abx daemon start' })
    end
    return
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
  client.look(function(problem)
    if problem then
      done, err = true, problem
    else
      ask(20)
    end
  end)
  vim.wait(LIMIT, function()
    return done
  end, 10)
  if not done then
    say.error('abxd does not answer', { 'restart it: abx daemon restart' })
    return
  end
  if err then
    say.error(err.message, { err.hint or 'run: abx doctor' })
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
  program(say)
  say.start('abx: daemon')
  daemon(say)
end

return M
