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
