-- What is there before the plugin is needed: events that wake it, the command, and names for mappings.
if vim.g.loaded_dflash then
  return
end
vim.g.loaded_dflash = 1

if vim.fn.has("nvim-0.10") == 0 then
  vim.notify("dflash: Neovim 0.10 or later is needed", vim.log.levels.WARN)
  return
end

-- A file that is opened starts the server, so that it is ready by the first key; a new buffer does by being typed in.
vim.api.nvim_create_autocmd({ "FileType", "InsertEnter" }, {
  group = vim.api.nvim_create_augroup("dflash.wake", {}),
  callback = function(event)
    -- Later: once the buffer is what it is going to be, and after what opens it has shown it.
    vim.schedule(function()
      require("dflash").attach(event.buf)
    end)
  end,
})

for name, call in pairs({
  accept = "accept()",
  ["accept-word"] = "accept_word()",
  ["accept-line"] = "accept_line()",
  next = "next()",
  previous = "previous()",
  dismiss = "dismiss()",
}) do
  vim.keymap.set("i", ("<Plug>(dflash-%s)"):format(name), ('<Cmd>lua require("dflash").%s<CR>'):format(call))
end

vim.api.nvim_create_user_command("Dflash", function(command)
  require("dflash.commands").run(command.fargs)
end, {
  nargs = "+",
  desc = "DFlash: enable, disable, toggle, snooze, status, profile, restart",
  complete = function(typed, line)
    return require("dflash.commands").complete(typed, line)
  end,
})
