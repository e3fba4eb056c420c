--- What the user may set, and what holds where they did not.
local M = {}

M.defaults = {
  -- The program. A path, or a name that is looked up in PATH.
  abx = 'abx',
  -- The home and the socket of the daemon. nil: ABX_HOME and ABX_SOCKET, else ~/.abx.
  home = nil,
  socket = nil,
  -- Start the daemon when a command needs it and none runs.
  autostart = true,
  -- Connect when setup() is called, so that a status line is right from the first moment. Starts no daemon.
  connect = true,
  -- Fields of `session.start` for each new session, such as { image = 'debian:stable-slim', agent = 'codex' }.
  start = {},
  -- Mount the current directory as the workspace of a session that is started without `workspace=`.
  workspace = false,
  attach = {
    -- 'split', 'vsplit', 'tab', 'current', or a function that makes a window and goes there.
    open = 'split',
    -- Keys for --detach-keys; nil for those of abx (ctrl-] d).
    detach_keys = nil,
    -- Lines of what scrolled away to show above the screen.
    scrollback = 1000,
    -- Close the window when the terminal was left or its program ended well.
    close = true,
  },
  list = {
    -- As attach.open.
    open = 'split',
  },
  -- Say so when an agent begins to wait for its user, or is done.
  notify_attention = true,
}

M.values = vim.deepcopy(M.defaults)

--- Replaces all settings.
---
--- Errors name the setting and what it should be.
function M.set(given)
  given = given or {}
  for name, value in pairs(given) do
    local kinds = M.kinds[name]
    if not kinds then
      error(("abx: no setting '%s'; see :help abx-settings"):format(name), 0)
    end
    if not vim.tbl_contains(kinds, type(value)) then
      error(("abx: setting '%s' should be a %s, not a %s"):format(name, table.concat(kinds, ' or '), type(value)), 0)
    end
  end
  M.values = vim.tbl_deep_extend('force', M.defaults, given)
end

M.kinds = {
  abx = { 'string' },
  home = { 'string' },
  socket = { 'string' },
  autostart = { 'boolean' },
  connect = { 'boolean' },
  start = { 'table' },
  workspace = { 'boolean' },
  attach = { 'table' },
  list = { 'table' },
  notify_attention = { 'boolean' },
}

return M
