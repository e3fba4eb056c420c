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
  local function screen()
    return table.concat(ask('nvim_buf_get_lines', 0, 0, -1, false), '\n')
  end
  return {
    ask = ask,
    lua = lua,
    type = function(keys)
      ask('nvim_input', keys)
    end,
    screen = screen,
    --- Waits for something that the screen is to show, and says what it shows instead.
    shows = function(what, pattern)
      local ok = pcall(h.wait, what, function()
        return screen():match(pattern)
      end)
      if not ok then
        error(('waited in vain for %s on:\n%s'):format(what, screen()), 2)
      end
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
  ed.shows('the shell', '\n42%-done')
  -- The size takes a moment from the window through abx to the sandbox; the shell says when it is there.
  local function size(mark)
    local at = ed.lua('return { vim.api.nvim_win_get_height(0), vim.api.nvim_win_get_width(0) }')
    ed.type(([[until [ "$(stty size)" = "%d %d" ]; do sleep 0.05; done; echo %s-'ok'<CR>]]):format(at[1], at[2], mark))
    ed.shows('the size of the window', mark .. '%-ok')
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
  ed.shows('the same shell', '\nstill there')
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
  ed.shows('its last words', '%[Process exited 3%]')
  ed.stop()
end)

h.test('keys of the list do what the help says', function()
  local ed = editor()
  ed.type(':Abx<CR>')
  ed.shows('the list', '\none ')
  ed.type('/^one<CR>fone-fork')
  ed.type('<C-u>forked<CR>')
  ed.shows('the fork', '\nforked +codex +running')
  ed.type('/^forked<CR>x')
  ed.shows('the stop', '\nforked +codex +stopped')
  ed.type('w')
  ed.shows('the save', '\nforked +codex +saved')
  ed.type('r')
  ed.shows('the resume', '\nforked +codex +running')
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
