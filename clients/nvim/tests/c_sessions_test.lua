-- Sessions on a real engine.
local h = harness
local abx = require('abx')
local client = require('abx.client')
local list = require('abx.list')

local image = vim.env.ABX_TEST_IMAGE

abx.setup({ connect = false, abx = vim.env.ABX_TEST_ABX })

local function setup()
  abx.setup({ abx = vim.env.ABX_TEST_ABX, start = { image = image } })
  h.get(abx.refresh)
end

local function has(name, field, want)
  h.wait(('%s of %s to be %s'):format(field, name, want), function()
    local session = client.find(name)
    return session and session[field] == want
  end)
end

local function gone(name)
  h.wait(name .. ' to be gone', function()
    return not client.find(name)
  end)
end

local function list_text()
  return h.text(vim.fn.bufnr(list.NAME))
end

h.test('the list shows a session from its start, and each change by another client', function()
  setup()
  list.open()
  h.wait('the empty list', function()
    return list_text():match('No sessions yet')
  end)
  vim.cmd('Abx start one agent=codex meta=team=a env=SECRET=s')
  h.wait('a line', function()
    return list_text():match('\none +codex +running +%d+s +0')
  end)
  h.noticed("'one' started")
  h.equal(client.find('one').metadata, { team = 'a' })
  h.abx('start', 'two', '--image', image)
  h.wait('a line of the other client', function()
    return list_text():match('\ntwo +claude +running')
  end)
  h.abx('stop', '--grace', '0s', 'two')
  h.wait('its stop', function()
    return list_text():match('\ntwo +claude +stopped')
  end)
  h.abx('delete', '-y', 'two')
  gone('two')
  assert(not list_text():match('\ntwo '))
end)

h.test('the first list that a new editor shows has the cursor on the first session', function()
  vim.cmd('bwipeout! ' .. vim.fn.bufnr(list.NAME))
  -- As in an editor that has just begun: the list is not known yet when its buffer is shown.
  abx.setup({ abx = vim.env.ABX_TEST_ABX, start = { image = image }, connect = false })
  h.equal(client.sessions(), {})
  list.open()
  h.wait('the list', function()
    return list_text():match('\none ')
  end)
  h.equal((list.current() or {}).name, 'one')
  -- Whoever goes to the heading afterwards stays there.
  vim.api.nvim_win_set_cursor(0, { 1, 0 })
  h.get(abx.refresh)
  h.equal(vim.api.nvim_win_get_cursor(0)[1], 1)
end)

h.test('the cursor stays on its session while the list changes', function()
  local row = vim.fn.search('^one ', 'w')
  assert(row > 0)
  h.equal(list.current().name, 'one')
  h.abx('start', 'zwei', '--image', image)
  has('zwei', 'status', 'running')
  h.wait('another line above', function()
    return vim.fn.search('^one ', 'wn') ~= row
  end)
  h.equal(list.current().name, 'one')
  h.abx('delete', '-y', 'zwei')
  gone('zwei')
end)

h.test('stop, save, resume, fork, rename, pause and delete do what they say', function()
  h.abx('exec', 'one', '--', 'sh', '-c', 'echo kept > /root/note')
  vim.cmd('Abx pause one')
  has('one', 'status', 'paused')
  vim.cmd('Abx unpause one')
  has('one', 'status', 'running')
  vim.cmd('Abx save one first')
  has('one', 'status', 'saved')
  h.noticed('snapshot: first')
  has('one', 'snapshot', 'first')
  vim.cmd('Abx fork one three first')
  has('three', 'status', 'running')
  h.equal(vim.trim(h.abx('exec', 'three', '--', 'cat', '/root/note')), 'kept')
  vim.cmd('Abx rename three four')
  has('four', 'status', 'running')
  vim.cmd('Abx resume one')
  has('one', 'status', 'running')
  vim.cmd('Abx stop one')
  has('one', 'status', 'stopped')
  vim.cmd('Abx delete! four')
  gone('four')
end)

h.test('delete asks first, and keeps what it is told to keep', function()
  local asked
  local select = vim.ui.select
  vim.ui.select = function(choices, options, callback)
    asked = options.prompt
    callback(choices[1], 1)
  end
  vim.cmd('Abx delete one')
  h.wait('a question', function()
    return asked
  end)
  h.matches(asked, "Delete session 'one', its container and 1 snapshot%?")
  assert(client.find('one'))
  list.delete({ name = 'bare', snapshots = 0 })
  h.equal(asked, "Delete session 'bare' and its container? It has no snapshot.")
  list.delete({ name = 'rich', snapshots = 2 })
  h.equal(asked, "Delete session 'rich', its container and 2 snapshots?")
  vim.ui.select = select
end)

h.test('names with spaces and signs are names, never commands', function()
  local name = "it's $(touch x) \\ `y` \"q\" % # | é"
  h.get(abx.start, name, nil)
  has(name, 'status', 'running')
  local found = vim.fn.getcompletion('Abx stop it', 'cmdline')
  h.equal(#found, 1)
  vim.cmd('Abx stop ' .. found[1])
  has(name, 'status', 'stopped')
  vim.cmd('Abx delete! ' .. found[1])
  gone(name)
end)

h.test('completion knows verbs, names and options', function()
  h.equal(vim.fn.getcompletion('Abx sa', 'cmdline'), { 'save' })
  h.equal(vim.fn.getcompletion('Abx resume o', 'cmdline'), { 'one' })
  h.equal(vim.fn.getcompletion('Abx start x im', 'cmdline'), { 'image=' })
  h.equal(vim.fn.getcompletion('Abx attach one re', 'cmdline'), { 'read-only' })
end)

h.test('an error of the daemon reaches the user with its hint', function()
  vim.cmd('Abx start one')
  local note = h.noticed('one')
  h.equal(note.level, vim.log.levels.ERROR)
  h.matches(note.message, 'Hint: ')
  local err = h.call(abx.start, 'bad/name', nil)
  h.equal(err.kind, 'invalid_name')
end)

h.test('progress is shown with its session', function()
  local seen = {}
  local stop = abx.on('event', function(event)
    if event.kind == 'progress' then
      seen[#seen + 1] = event.data.text
    end
  end)
  h.get(abx.save, 'one', { snapshot = 'second' })
  stop()
  assert(#seen > 0, 'progress')
  h.wait('it to go', function()
    return client.progress('one') == nil
  end)
end)

h.test('events are shown as they come', function()
  local buffer = require('abx.events').open('one')
  h.wait('what was before', function()
    return h.text(buffer):match('session.created  one.* by nvim')
  end)
  assert(not h.text(buffer):match('two'))
  h.abx('resume', 'one')
  h.wait('what comes', function()
    return h.text(buffer):match('saved %-> running.* by abx %d+')
  end)
  h.abx('start', 'other', '--image', image)
  has('other', 'status', 'running')
  h.abx('delete', '-y', 'other')
  gone('other')
  assert(not h.text(buffer):match('other'))
  vim.cmd('bwipeout ' .. buffer)
end)

h.test('attention is in the list, the status line and a notice', function()
  local rows = vim.deepcopy(client.sessions())
  h.equal(abx.statusline(), 'abx: 1/1')
  -- What a daemon with attention would list.
  rows[1].attention, rows[1].attention_note = 'waiting', 'run rm -rf?'
  client.take(rows)
  h.equal(abx.statusline(), 'abx: 1/1, one waits')
  h.equal(#abx.attention(), 1)
  h.noticed('one waits for you: run rm %-rf%?')
  h.matches(list_text(), 'waiting: run rm %-rf%?')
  -- Its deletion ends what runs in it; an agent that ends by itself is done.
  h.notes = {}
  rows = vim.deepcopy(rows)
  rows[1].attention, rows[1].attention_note, rows[1].operation = 'done', 'SIGKILL', 'delete'
  client.take(rows)
  h.equal(h.notes, {})
  for _, attention in ipairs({ 'working', 'done' }) do
    rows = vim.deepcopy(rows)
    rows[1].attention, rows[1].attention_note, rows[1].operation = attention, nil, nil
    client.take(rows)
  end
  h.noticed('one is done$')
  h.get(abx.refresh)
end)

h.test('a restart of the daemon is survived: the link comes back, and what happened meanwhile is seen', function()
  local seen = {}
  local stop = abx.on('event', function(event)
    seen[#seen + 1] = event.kind .. ' ' .. tostring(event.session)
  end)
  local before = client.last_event()
  assert(before > 0)
  h.abx('daemon', 'stop')
  h.wait('the loss', function()
    return client.phase() ~= 'ready'
  end)
  h.matches(abx.statusline(), 'away')
  h.matches(list_text(), 'away')
  h.abx('daemon', 'start')
  h.abx('start', 'meanwhile', '--image', image)
  h.wait('the link', function()
    return client.phase() == 'ready'
  end)
  has('meanwhile', 'status', 'running')
  h.wait('its events', function()
    return vim.tbl_contains(seen, 'session.created meanwhile')
  end)
  stop()
  -- Each once, whether it was replayed or came live.
  h.equal(#vim.tbl_filter(function(line)
    return line == 'session.created meanwhile'
  end, seen), 1)
  vim.cmd('Abx delete! meanwhile')
  gone('meanwhile')
end)

h.test('a command while the daemon is away starts it', function()
  h.abx('daemon', 'stop')
  h.wait('the loss', function()
    return client.phase() ~= 'ready'
  end)
  h.equal(#h.get(abx.refresh), 1)
  h.equal(client.phase(), 'ready')
end)
