-- The link to the daemon: found, started, lost, found again.
local h = harness
local abx = require('abx')
local client = require('abx.client')
local place = require('abx.place')

local function setup(settings)
  abx.setup(vim.tbl_extend('force', { abx = vim.env.ABX_TEST_ABX, connect = false }, settings or {}))
end

h.test('a program that is not there is an error with a hint', function()
  setup({ abx = '/no/such/abx' })
  local err = h.call(abx.refresh)
  h.equal(err.kind, 'no_abx')
  h.matches(err.hint, 'setup')
  h.equal((h.call(abx.attach, 'x', {})).kind, 'no_abx')
end)

h.test('without autostart no daemon is started, and the hint says what starts it', function()
  setup({ autostart = false })
  local err = h.call(abx.refresh)
  h.equal(err.kind, 'daemon_unreachable')
  h.matches(err.hint, 'abx daemon start')
  h.equal(client.phase(), 'off')
  h.equal(abx.statusline(), '')
end)

h.test('a daemon that cannot start says why', function()
  local file = vim.env.ABX_TEST_DIR .. '/a-file'
  vim.fn.writefile({}, file)
  setup({ home = file })
  local err = h.call(abx.refresh)
  h.equal(err.kind, 'daemon_unreachable')
  h.matches(err.message, '%a')
  assert(err.hint, 'a hint')
end)

h.test('setup with no daemon is quiet and starts none', function()
  setup({ connect = true })
  h.wait('the look to end', function()
    return client.phase() == 'off'
  end)
  h.equal(h.notes, {})
end)

h.test('a command starts the daemon', function()
  setup()
  h.equal(h.get(abx.refresh), {})
  h.equal(client.phase(), 'ready')
  h.matches(client.server().version, '%d')
end)

h.test('the socket is where the daemon says that it is', function()
  h.equal(place.socket(), (h.get(abx.request, 'daemon.info', nil)).socket)
  -- Known answers of FNV-1a with 64 bits.
  h.equal(place.hash(''), 'cbf29ce484222325')
  h.equal(place.hash('a'), 'af63dc4c8601ec8c')
  h.equal(place.hash('foobar'), '85944171f73967e8')
end)

h.test('the socket of a deep home is the short one that abx computes', function()
  local deep = vim.env.ABX_TEST_DIR .. '/' .. ('d'):rep(100)
  setup({ home = deep })
  local out = vim.fn.system({ vim.env.ABX_TEST_ABX, '--home', deep, '--no-autostart', 'ls' })
  assert(out:find(place.socket(), 1, true), out .. ' does not name ' .. place.socket())
end)

h.test('unknown verbs and wrong uses say what is right', function()
  setup()
  vim.cmd('Abx dance')
  h.noticed("no ':Abx dance'")
  vim.cmd('Abx fork a')
  h.noticed('usage: :Abx fork NAME NEW')
  vim.cmd('Abx start x timeout=soon')
  h.noticed("'soon' is no duration")
  vim.cmd('Abx stop nobody')
  h.equal(h.noticed('nobody').level, vim.log.levels.ERROR)
end)
