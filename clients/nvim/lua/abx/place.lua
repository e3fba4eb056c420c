--- Where the daemon listens, as abx itself finds out.
local config = require('abx.config')
local loop = vim.uv or vim.loop
local bit = require('bit')

local M = {}

-- Longest path of a socket, in bytes; past it a short one is used.
local MAX_PATH = 94

--- The 64-bit FNV-1a hash of a text, in 16 hexadecimal digits.
---
--- Numbers have 53 bits, so it is kept as four parts of 16.
function M.hash(text)
  local a, b, c, d = 0xcbf2, 0x9ce4, 0x8422, 0x2325 -- highest first
  for i = 1, #text do
    d = bit.bxor(d, text:byte(i))
    -- times 2^40 + 0x1b3
    local nd = d * 0x1b3
    local nc = c * 0x1b3 + math.floor(nd / 65536)
    local nb = b * 0x1b3 + math.floor(nc / 65536) + d * 256
    local na = a * 0x1b3 + math.floor(nb / 65536) + c * 256
    a, b, c, d = na % 65536, nb % 65536, nc % 65536, nd % 65536
  end
  return ('%04x%04x%04x%04x'):format(a, b, c, d)
end

local function absolute(path)
  if path:sub(1, 2) == '~/' or path == '~' then
    path = loop.os_homedir() .. path:sub(2)
  end
  if path:sub(1, 1) ~= '/' then
    path = loop.cwd() .. '/' .. path
  end
  local out = path:gsub('/+', '/'):gsub('/%./', '/'):gsub('(.)/$', '%1')
  return out
end

-- A path with the links of what exists of it resolved; what does not exist yet stays as it is written.
local function resolved(path)
  local rest = ''
  local head = absolute(path)
  while head ~= '/' do
    local real = loop.fs_realpath(head)
    if real then
      return (real == '/' and '' or real) .. rest
    end
    local parent, name = head:match('^(.*)/([^/]+)$')
    rest = '/' .. name .. rest
    head = parent == '' and '/' or parent
  end
  return rest
end

local function variable(name)
  local value = loop.os_getenv(name)
  return value ~= '' and value or nil
end

local function bindable(path, named)
  if #path <= MAX_PATH then
    return path
  end
  return ('/tmp/abx-%d/%s.sock'):format(loop.getuid(), M.hash(named))
end

--- The home: setting, ABX_HOME, ~/.abx.
function M.home()
  return resolved(config.values.home or variable('ABX_HOME') or (loop.os_homedir() .. '/.abx'))
end

--- The socket: setting, ABX_SOCKET, daemon.sock in the home.
function M.socket()
  local chosen = config.values.socket or variable('ABX_SOCKET')
  if chosen then
    chosen = absolute(chosen)
    return bindable(chosen, chosen)
  end
  local home = M.home()
  return bindable(home .. '/daemon.sock', home)
end

--- What is wrong with a socket, or with its directory, where it is neither this user's nor root's: whoever owns one of them
--- chooses who listens there. nil where all is well. To be asked once connected, before anything is sent.
function M.foreign(path)
  for _, each in ipairs({ path, path:match('^(.+)/[^/]*$') or '/' }) do
    local stat, err = loop.fs_stat(each)
    if not stat then
      return ('cannot tell to whom %s belongs: %s'):format(each, err)
    end
    if stat.uid ~= 0 and stat.uid ~= loop.getuid() then
      return ('%s belongs to user %d, not to this one'):format(each, stat.uid)
    end
  end
end

--- A command line of abx for this home and socket, as a list: no shell ever sees it.
function M.argv(...)
  local argv = { config.values.abx }
  if config.values.home then
    vim.list_extend(argv, { '--home', absolute(config.values.home) })
  end
  if config.values.socket then
    vim.list_extend(argv, { '--socket', absolute(config.values.socket) })
  end
  return vim.list_extend(argv, { ... })
end

M.absolute = absolute

return M
