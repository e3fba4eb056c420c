-- Terminals, with keys that are typed: a second editor is driven by this one.
local h = harness

local function editor()
  local child = vim.fn.jobstart({ vim.v.progpath, '--embed', '--headless', '-u', 'NONE', '-i', 'NONE', '-n' }, { rpc = true })
  local function ask(...)
    return vim.fn.rpcrequest(child, ...)
  end
  local function lua(code, ...)
    return ask('nvim_exec_lua', code, { ... })
  end
  lua(
    [[
    local root, abx, image = ...
    vim.o.rtp = root .. ',' .. vim.o.rtp
    vim.cmd('runtime plugin/abx.lua')
    vim.o.columns, vim.o.lines = 100, 30
    notes = {}
    vim.notify = function(message) table.insert(notes, message) end
    require('abx').setup { abx = abx, start = { image = image }, attach = { open = 'current' } }
  ]],
    vim.fn.getcwd(),
    vim.env.ABX_TEST_ABX,
    vim.env.ABX_TEST_IMAGE
  )
  return {
    ask = ask,
    lua = lua,
    type = function(keys)
      ask('nvim_input', keys)
    end,
    screen = function()
      return table.concat(ask('nvim_buf_get_lines', 0, 0, -1, false), '\n')
    end,
    stop = function()
      vim.fn.jobstop(child)
      vim.fn.jobwait({ child }, 5000)
    end,
  }
end

h.test('attach resumes, takes keys, follows the size of its window, is left and found again', function()
  local ed = editor()
  h.abx('stop', '--grace', '0s', 'one')
  ed.type(':Abx attach one -- sh<CR>')
  h.wait('a terminal', function()
    return ed.ask('nvim_get_mode').mode == 't'
  end)
  h.matches(ed.ask('nvim_buf_get_name', 0), 'abx://one/main$')
  ed.type('echo $((6 * 7))-done<CR>')
  h.wait('the shell', function()
    return ed.screen():match('\n42%-done')
  end)
  -- The size takes a moment from the window through abx to the sandbox; the shell says when it is there.
  local function size(mark)
    local at = ed.lua('return { vim.api.nvim_win_get_height(0), vim.api.nvim_win_get_width(0) }')
    ed.type(([[until [ "$(stty size)" = "%d %d" ]; do sleep 0.05; done; echo %s-'ok'<CR>]]):format(at[1], at[2], mark))
    h.wait('the size of the window', function()
      return ed.screen():match(mark .. '%-ok')
    end)
  end
  size('first')
  ed.lua('vim.o.columns, vim.o.lines = 77, 21')
  size('second')
  -- The keys of abx itself leave; the shell goes on.
  ed.type('cd /tmp; here=still<CR>')
  ed.type('<C-]>d')
  h.wait('the window to be given back', function()
    return not ed.ask('nvim_buf_get_name', 0):match('^abx://') and ed.ask('nvim_get_mode').mode ~= 't'
  end)
  ed.type(':Abx attach one<CR>')
  h.wait('a terminal', function()
    return ed.ask('nvim_get_mode').mode == 't'
  end)
  ed.type('echo $here there<CR>')
  h.wait('the same shell', function()
    return ed.screen():match('\nstill there')
  end)
  -- Attaching again goes to the buffer that is there.
  local buffer = ed.ask('nvim_get_current_buf')
  ed.type('<C-\\><C-n>:enew<CR>:Abx attach one<CR>')
  h.wait('the same buffer', function()
    return ed.ask('nvim_get_current_buf') == buffer
  end)
  ed.type('<C-\\><C-n>:Abx detach<CR>')
  h.wait('the end', function()
    return not ed.ask('nvim_buf_is_valid', buffer)
  end)
  h.wait('no client', function()
    local terminals = vim.json.decode(h.abx('terminal', 'list', 'one', '--json'))
    return terminals[1] and terminals[1].clients == 0
  end)
  h.equal(ed.lua('return notes'), {})
  ed.stop()
end)

h.test('the end of what ran in a terminal is seen, and a bad end stays on the screen', function()
  local ed = editor()
  ed.type(':Abx attach one terminal=bad -- sh -c "echo\\ oops;\\ exit\\ 3"<CR>')
  ed.type(':Abx attach one terminal=worse -- sh<CR>')
  h.wait('a terminal', function()
    return ed.ask('nvim_get_mode').mode == 't' and ed.ask('nvim_buf_get_name', 0):match('worse$')
  end)
  ed.type('exit 3<CR>')
  h.wait('its last words', function()
    return ed.screen():match('%[Process exited 3%]')
  end)
  ed.stop()
end)

h.test('keys of the list do what the help says', function()
  local ed = editor()
  ed.type(':Abx<CR>')
  h.wait('the list', function()
    return ed.screen():match('\none ')
  end)
  ed.type('/^one<CR>fone-fork')
  ed.type('<C-u>forked<CR>')
  h.wait('the fork', function()
    return ed.screen():match('\nforked +codex +running')
  end)
  ed.type('/^forked<CR>x')
  h.wait('the stop', function()
    return ed.screen():match('\nforked +codex +stopped')
  end)
  ed.type('w')
  h.wait('the save', function()
    return ed.screen():match('\nforked +codex +saved')
  end)
  ed.type('r')
  h.wait('the resume', function()
    return ed.screen():match('\nforked +codex +running')
  end)
  ed.type('D')
  h.wait('the question', function()
    return ed.ask('nvim_get_mode').mode == 'c' or ed.ask('nvim_get_mode').blocking
  end)
  ed.type('2<CR>')
  h.wait('the delete', function()
    return not ed.screen():match('\nforked ')
  end)
  ed.type('q')
  ed.stop()
end)
