--- The list of sessions: a buffer that follows the daemon, and keys for what may be done with the session under the cursor.
local client = require('abx.client')
local config = require('abx.config')
local text = require('abx.text')
local window = require('abx.window')

local M = {}

M.NAME = 'abx://sessions'

-- DURATION grows by itself; a list that is seen is drawn again this often, in milliseconds.
local TICK = 20000

-- The first line of the first session.
local FIRST = 3

local space = vim.api.nvim_create_namespace('abx')

local groups = {
  AbxTitle = 'Title',
  AbxHeader = 'Comment',
  AbxName = 'Identifier',
  AbxRunning = 'String',
  AbxBusy = 'WarningMsg',
  AbxStopped = 'Comment',
  AbxSaved = 'Type',
  AbxLost = 'ErrorMsg',
  AbxWaiting = 'WarningMsg',
  AbxProblem = 'ErrorMsg',
}

local function colour(session)
  if session.operation then
    return 'AbxBusy'
  end
  local by_status = { running = 'AbxRunning', saved = 'AbxSaved', lost = 'AbxLost', starting = 'AbxBusy' }
  return by_status[session.status] or 'AbxStopped'
end

local function heading()
  local phase, problem = client.phase()
  local words = {
    off = 'not connected',
    connecting = 'connecting...',
    lost = 'abxd is away, trying to reach it',
    ready = ('%d session%s'):format(#client.sessions(), #client.sessions() == 1 and '' or 's'),
  }
  local line = ('abx: %s    g? for keys'):format(words[phase])
  if problem and phase ~= 'ready' and phase ~= 'connecting' then
    return line, vim.split(text.failure(problem), '\n')
  end
  return line, {}
end

-- Lines, the session of each, and what to colour: { line, from, to, group }.
local function compose()
  local head, problems = heading()
  local lines, rows, marks = { head }, {}, { { 0, 0, #head, 'AbxTitle' } }
  local sessions = client.sessions()
  local width = { name = 20, agent = 10, status = 10, age = 10 }
  for _, session in ipairs(sessions) do
    width.name = math.min(48, math.max(width.name, vim.fn.strdisplaywidth(session.name)))
    width.status = math.min(28, math.max(width.status, #text.status(session)))
  end
  local header = table.concat({
    text.pad('NAME', width.name),
    text.pad('AGENT', width.agent),
    text.pad('STATUS', width.status),
    text.pad('DURATION', width.age),
    'EXECS',
    'ATTENTION',
  }, ' ')
  lines[2] = header
  marks[#marks + 1] = { 1, 0, #header, 'AbxHeader' }
  for _, session in ipairs(sessions) do
    local name = text.pad(text.clean(session.name), width.name)
    local agent = text.pad(text.clean(session.agent), width.agent)
    local status = text.pad(text.status(session), width.status)
    local last = client.progress(session.name)
    last = last and text.clean(last) or text.attention(session)
    local start = ('%s %s '):format(name, agent)
    local middle = ('%s%s %s %5d '):format(start, status, text.pad(text.age(session), width.age), session.exec_count)
    local line = (middle .. last):gsub('%s+$', '')
    lines[#lines + 1] = line
    local row = #lines - 1
    rows[#lines] = session.id
    marks[#marks + 1] = { row, 0, #name, 'AbxName' }
    marks[#marks + 1] = { row, #start, #start + #status, colour(session) }
    if session.attention == 'waiting' and last ~= '' then
      marks[#marks + 1] = { row, #middle, #line, 'AbxWaiting' }
    end
  end
  if #sessions == 0 and client.loaded() then
    lines[#lines + 1] = 'No sessions yet. Press s to start one.'
  end
  for _, problem in ipairs(problems) do
    lines[#lines + 1] = problem
    marks[#marks + 1] = { #lines - 1, 0, #problem, 'AbxProblem' }
  end
  return lines, rows, marks
end

local buffer, rows_of

-- Whether the list has shown no session since it was opened: the first list may come later than the buffer, and the cursor
-- then goes to the first session, for which the keys are.
local fresh = true

local function draw()
  if not (buffer and vim.api.nvim_buf_is_valid(buffer)) then
    return
  end
  local lines, rows, marks = compose()
  -- Each window's cursor stays on its session, wherever that is now.
  local cursors = {}
  for _, win in ipairs(vim.fn.win_findbuf(buffer)) do
    local at = vim.api.nvim_win_get_cursor(win)
    cursors[win] = { id = rows_of and rows_of[at[1]] or '', line = at[1], column = at[2] }
    if fresh and at[1] < FIRST then
      cursors[win].line = FIRST
    end
  end
  window.write(buffer, 0, -1, lines)
  vim.api.nvim_buf_clear_namespace(buffer, space, 0, -1)
  for _, mark in ipairs(marks) do
    if mark[3] > mark[2] then
      vim.api.nvim_buf_set_extmark(buffer, space, mark[1], mark[2], { end_col = mark[3], hl_group = mark[4] })
    end
  end
  rows_of = rows
  local line_of = {}
  for line, id in pairs(rows) do
    line_of[id] = line
  end
  for win, cursor in pairs(cursors) do
    local line = line_of[cursor.id] or cursor.line
    line = math.max(1, math.min(line, #lines))
    vim.api.nvim_win_set_cursor(win, { line, cursor.column })
  end
  fresh = fresh and #client.sessions() == 0
end

--- The session under the cursor.
function M.current()
  local id = rows_of and rows_of[vim.api.nvim_win_get_cursor(0)[1]]
  for _, session in ipairs(client.sessions()) do
    if session.id == id then
      return session
    end
  end
end

-- Runs an action on the session under the cursor.
local function on(action)
  return function()
    local session = M.current()
    if session then
      action(session)
    else
      vim.notify('abx: no session on this line', vim.log.levels.WARN)
    end
  end
end

local function ask(prompt, default, callback)
  vim.ui.input({ prompt = prompt, default = default }, function(answer)
    if answer and vim.trim(answer) ~= '' then
      callback(vim.trim(answer))
    end
  end)
end

-- What would be lost, in the words of `abx session delete`.
local function question(session)
  local name = text.clean(session.name)
  if session.snapshots == 0 then
    return ("Delete session '%s' and its container? It has no snapshot."):format(name)
  end
  local count = session.snapshots == 1 and '1 snapshot' or ('%d snapshots'):format(session.snapshots)
  return ("Delete session '%s', its container and %s?"):format(name, count)
end

--- Asks, then deletes.
function M.delete(session)
  local choices = { 'Keep it', 'Delete it' }
  if session.snapshots > 0 then
    choices[3] = 'Delete it, keep its snapshots'
  end
  vim.ui.select(choices, { prompt = question(session) }, function(_, index)
    if index == 2 or index == 3 then
      require('abx').delete(session.name, { keep_snapshots = index == 3 })
    end
  end)
end

--- Shows everything about a session in a window of its own.
function M.details(session)
  local lines = vim.split(vim.inspect(session), '\n')
  local float = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_lines(float, 0, -1, false, lines)
  vim.bo[float].modifiable = false
  vim.bo[float].bufhidden = 'wipe'
  vim.bo[float].filetype = 'lua'
  local height = math.min(#lines, math.max(5, vim.o.lines - 6))
  local width = math.min(100, math.max(20, vim.o.columns - 8))
  vim.api.nvim_open_win(float, true, {
    relative = 'editor',
    row = math.max(0, math.floor((vim.o.lines - height) / 2) - 1),
    col = math.max(0, math.floor((vim.o.columns - width) / 2)),
    width = width,
    height = height,
    style = 'minimal',
    border = 'rounded',
  })
  vim.keymap.set('n', 'q', '<Cmd>close<CR>', { buffer = float, nowait = true })
  vim.keymap.set('n', '<Esc>', '<Cmd>close<CR>', { buffer = float, nowait = true })
end

local keys = {
  { '<CR>', 'attach: a terminal of the session', on(function(s) require('abx').attach(s.name) end) },
  { 'a', "attach the session's agent", on(function(s) require('abx').attach(s.name, { agent = true }) end) },
  { 's', 'start a session', function()
    ask('New session: ', nil, function(name) require('abx').start(name) end)
  end },
  { 'x', 'stop it', on(function(s) require('abx').stop(s.name) end) },
  { 'w', 'save it', on(function(s) require('abx').save(s.name) end) },
  { 'r', 'resume it', on(function(s) require('abx').resume(s.name) end) },
  { 'f', 'fork it', on(function(s)
    ask('Fork to: ', s.name .. '-2', function(name) require('abx').fork(s.name, name) end)
  end) },
  { 'm', 'rename it', on(function(s)
    ask('Rename to: ', s.name, function(name) require('abx').rename(s.name, name) end)
  end) },
  { 'p', 'pause it, or go on', on(function(s)
    require('abx')[s.status == 'paused' and 'unpause' or 'pause'](s.name)
  end) },
  { 'D', 'delete it, after a question', on(M.delete) },
  { 'K', 'everything about it', on(M.details) },
  { 'e', 'its events', on(function(s) require('abx').events(s.name) end) },
  { 'E', 'all events', function() require('abx').events() end },
  { 'R', 'list again', function()
    client.refresh(function(err)
      if err then
        require('abx').show_error(err)
      end
    end)
  end },
  { 'g?', 'these keys', function() M.help() end },
  { 'q', 'close the list', function()
    if not pcall(vim.api.nvim_win_close, 0, false) then
      vim.cmd('enew')
    end
  end },
}

--- Prints the keys.
function M.help()
  local lines = {}
  for _, key in ipairs(keys) do
    lines[#lines + 1] = { ('%-6s'):format(key[1]), 'AbxName' }
    lines[#lines + 1] = { key[2] .. '\n' }
  end
  vim.api.nvim_echo(lines, false, {})
end

local function prepare()
  for name, link in pairs(groups) do
    vim.api.nvim_set_hl(0, name, { default = true, link = link })
  end
  for _, key in ipairs(keys) do
    vim.keymap.set('n', key[1], key[3], { buffer = buffer, nowait = true, desc = 'abx: ' .. key[2] })
  end
  local stops = { client.on('sessions', draw), client.on('state', draw) }
  local timer = (vim.uv or vim.loop).new_timer()
  timer:start(TICK, TICK, vim.schedule_wrap(function()
    if buffer and vim.fn.bufwinid(buffer) ~= -1 then
      draw()
    end
  end))
  vim.api.nvim_create_autocmd('BufWipeout', {
    buffer = buffer,
    once = true,
    callback = function()
      for _, stop in ipairs(stops) do
        stop()
      end
      timer:close()
      buffer = nil
    end,
  })
end

--- Opens the list, or goes to it.
function M.open()
  local made
  buffer, made = window.scratch(M.NAME, 'abx-sessions')
  if made then
    prepare()
  end
  window.show(buffer, config.values.list.open)
  vim.wo.wrap = false
  vim.wo.cursorline = true
  fresh = true
  draw()
  client.refresh(function() end)
  return buffer
end

return M
