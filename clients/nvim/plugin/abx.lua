-- The command :Abx. Everything else is loaded when it is first used.
if vim.g.loaded_abx then
  return
end
vim.g.loaded_abx = true

if vim.fn.has('nvim-0.7') == 0 then
  vim.notify('abx: Neovim 0.7 or newer is needed', vim.log.levels.ERROR)
  return
end

vim.api.nvim_create_user_command('Abx', function(options)
  require('abx.command').run(options)
end, {
  nargs = '*',
  bang = true,
  desc = 'Sandboxes of abx',
  complete = function(...)
    return require('abx.command').complete(...)
  end,
})
