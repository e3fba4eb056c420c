-- Health and help.
local h = harness

h.test('checkhealth says what is there', function()
  vim.cmd('checkhealth abx')
  local text = h.text(0)
  for _, want in ipairs({ 'new enough', 'abx %d', 'abxd %d', 'engine docker: ok' }) do
    h.matches(text, want)
  end
  assert(not text:match('ERROR'), text)
  vim.cmd('bwipeout!')
end)

h.test('checkhealth names what is missing', function()
  require('abx').setup({ abx = '/no/such/abx', home = vim.env.ABX_TEST_DIR .. '/nobody', connect = false })
  vim.cmd('checkhealth abx')
  local text = h.text(0)
  h.matches(text, "ERROR.*no program '/no/such/abx'")
  h.matches(text, 'no abxd runs there')
  vim.cmd('bwipeout!')
end)

h.test('checkhealth starts the daemon, and names an engine that is missing', function()
  vim.env.DOCKER_HOST = 'unix:///no/such/engine.sock'
  local home = vim.env.ABX_TEST_DIR .. '/away'
  require('abx').setup({ abx = vim.env.ABX_TEST_ABX, home = home, connect = false })
  vim.cmd('checkhealth abx')
  local text = h.text(0)
  vim.env.DOCKER_HOST = nil
  h.abx('--home', home, 'daemon', 'stop')
  vim.cmd('bwipeout!')
  h.matches(text, 'abxd %d')
  h.matches(text, 'WARN.*engine docker: unavailable.*/no/such/engine.sock.*start Docker or Podman')
end)

h.test('checkhealth names an abxd that is missing, and says what to do', function()
  local lone = vim.env.ABX_TEST_DIR .. '/lone'
  vim.fn.mkdir(lone)
  h.matches(vim.fn.system({ 'cp', vim.env.ABX_TEST_ABX, lone .. '/abx' }), '^$')
  local path = vim.env.PATH
  vim.env.PATH = lone
  require('abx').setup({ abx = lone .. '/abx', home = vim.env.ABX_TEST_DIR .. '/nobody', connect = false })
  vim.cmd('checkhealth abx')
  vim.env.PATH = path
  local text = h.text(0)
  vim.cmd('bwipeout!')
  h.matches(text, 'ERROR.*there is no abxd.*install abxd beside abx')
end)

h.test('checkhealth starts nothing where it may not', function()
  require('abx').setup({ abx = vim.env.ABX_TEST_ABX, home = vim.env.ABX_TEST_DIR .. '/nobody', autostart = false, connect = false })
  vim.cmd('checkhealth abx')
  local text = h.text(0)
  vim.cmd('bwipeout!')
  h.matches(text, 'WARN.*autostart is off.*abx daemon start')
  assert(not text:match('abxd %d'), text)
end)

h.test('the help has a tag for the plugin, each setting, each command and each function', function()
  local doc = vim.env.ABX_TEST_DIR .. '/doc'
  vim.fn.mkdir(doc, 'p')
  vim.fn.writefile(vim.fn.readfile('doc/abx.txt'), doc .. '/abx.txt')
  vim.cmd('helptags ' .. doc)
  local tags = {}
  for _, line in ipairs(vim.fn.readfile(doc .. '/tags')) do
    tags[line:match('^[^\t]+')] = true
  end
  local function tagged(tag)
    assert(tags[tag], 'no help for ' .. tag)
  end
  tagged('abx')
  tagged(':Abx')
  for name in pairs(require('abx.config').kinds) do
    tagged('abx-setting-' .. name)
  end
  for _, verb in ipairs(require('abx.command').verbs()) do
    tagged(':Abx-' .. verb)
  end
  for name, value in pairs(require('abx')) do
    if type(value) == 'function' and name ~= 'show_error' and name ~= 'workspace' then
      tagged(('abx.%s()'):format(name))
    end
  end
end)
