-- The language server of this Neovim: one process for all buffers, started when first needed and again when it ends.
local config = require("dflash.config")
local status = require("dflash.status")

local M = {}

M.NAME = "dflash"
-- Four restarts in three minutes: enough for a bad moment, not for a server that cannot run.
local RESTARTS, WINDOW_MS = 4, 3 * 60000

---@type integer? client id
local id
---@type number[] uv.now() of each restart
local restarts = {}
---@type table<any, fun(value: table)> by partial result token
local growing = {}
---@type { started: fun(), ready: fun() }[] what hears of a new client, and of an engine that is there
local listeners = {}

--- Call a client's method, which is none yet in Neovim 0.10.
---@param client vim.lsp.Client
---@param name string
local function call(client, name, ...)
  if vim.fn.has("nvim-0.11") == 1 then
    return client[name](client, ...)
  end
  return client[name](...)
end

---@return vim.lsp.Client?
function M.client()
  local client = id and vim.lsp.get_client_by_id(id)
  return client and not call(client, "is_stopped") and client or nil
end

---@param listener { started: fun(), ready: fun() }
function M.listen(listener)
  table.insert(listeners, listener)
end

---@param what "started"|"ready"
local function tell(what)
  for _, listener in ipairs(listeners) do
    listener[what]()
  end
end

---@param reason string
local function fail(reason)
  if status.known.failure ~= reason then
    vim.notify("dflash: " .. reason, vim.log.levels.WARN)
  end
  status.known.failure = reason
  status.changed()
end

--- The server has ended: unless we ended it, it is started again after a while.
---@param code integer
---@param ended integer client id
local function ended(code, ended_id)
  if ended_id ~= id then
    return
  end
  id = nil
  status.known.engine = nil
  if vim.v.exiting ~= vim.NIL then
    return
  end
  local now = vim.uv.now()
  restarts = vim.tbl_filter(function(time)
    return now - time < WINDOW_MS
  end, restarts)
  if #restarts >= RESTARTS then
    fail(("the server ended with code %d; see :LspLog"):format(code))
    return
  end
  table.insert(restarts, now)
  status.changed()
  vim.defer_fn(function()
    M.start()
  end, 250 * 2 ^ #restarts)
end

local function progressed(error, params, context, handler_config)
  local grow = growing[params.token]
  if grow then
    grow(params.value)
  elseif vim.lsp.handlers["$/progress"] then
    return vim.lsp.handlers["$/progress"](error, params, context, handler_config)
  end
end

---@return string
local function root()
  return vim.fs.root(0, { ".git", ".hg", ".jj" }) or vim.fn.getcwd()
end

--- Start the server unless it runs. Whoever listens is told.
function M.start()
  if M.client() then
    return
  end
  local cmd = config.get().cmd
  if vim.fn.executable(cmd[1]) == 0 then
    fail(("cannot run %s; :checkhealth dflash tells more"):format(cmd[1]))
    return
  end
  local folder = root()
  local capabilities = vim.lsp.protocol.make_client_capabilities()
  -- The columns of Neovim's own functions, so that none has to be converted.
  capabilities.general.positionEncodings = { "utf-8" }
  local options = vim.tbl_extend("force", { surface = "stream", status = true }, config.get().server)
  local cwd = vim.fn.stdpath("state")
  vim.fn.mkdir(cwd, "p")
  local client_config = {
    name = M.NAME,
    cmd = cmd,
    cmd_cwd = cwd, -- not the workspace: nothing of it is to be run
    root_dir = folder,
    workspace_folders = { { uri = vim.uri_from_fname(folder), name = folder } },
    init_options = options,
    capabilities = capabilities,
    handlers = {
      ["$/progress"] = progressed,
      ["dflash/status"] = function(_, params)
        local was_ready = status.known.engine and status.known.engine.state ~= "loading"
        status.known.engine = params
        status.changed()
        if not was_ready and params.state ~= "loading" then
          tell("ready")
        end
      end,
    },
    on_exit = function(code, _, ended_id)
      vim.schedule(function()
        ended(code, ended_id)
      end)
    end,
  }
  if vim.fn.has("nvim-0.11") == 1 then
    id = vim.lsp.start(client_config, { attach = false })
  else
    id = vim.lsp.start_client(client_config)
  end
  status.known.failure = nil
  status.changed()
  if id then
    tell("started")
  else
    fail(("%s does not start; see :LspLog"):format(cmd[1]))
  end
end

--- End the server and start it anew, with the options as they are now.
function M.restart()
  local client = M.client()
  id = nil -- its end is none that must be mended
  restarts = {}
  status.known.engine = nil
  status.known.failure = nil
  if client then
    call(client, "stop")
  end
  M.start()
end

--- Ask for a completion that is told as it grows.
---@param buf integer
---@param params table without the token
---@param grow fun(value: table)
---@param done fun(error: table?, result: table?)
---@return fun()? cancel nil when there is no server
function M.stream(buf, params, grow, done)
  local client = M.client()
  if not client or not client.initialized then
    return nil
  end
  local token = ("dflash-%d"):format(vim.uv.hrtime())
  params.partialResultToken = token
  growing[token] = grow
  local sent, request = call(client, "request", "dflash/inlineCompletion", params, function(error, result)
    growing[token] = nil
    done(error, result)
  end, buf)
  if not sent then
    growing[token] = nil
    return nil
  end
  return function()
    if growing[token] then
      growing[token] = nil
      call(client, "cancel_request", request)
    end
  end
end

--- Tell the server something; without one, nobody.
---@param method string
---@param params table
function M.notify(method, params)
  local client = M.client()
  if client and client.initialized then
    call(client, "notify", method, params)
  end
end

--- Run one of the server's commands.
---@param command string
---@param arguments any[]
---@return boolean sent
function M.execute(command, arguments)
  local client = M.client()
  if not client or not client.initialized then
    return false
  end
  local params = { command = command, arguments = arguments }
  return (call(client, "request", "workspace/executeCommand", params, function(error)
    if error then
      vim.notify("dflash: " .. error.message, vim.log.levels.WARN)
    end
  end))
end

return M
