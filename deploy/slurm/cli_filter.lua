-- Slurm's hook on the side of the user (CliFilterPlugins=lua; this file beside slurm.conf): fills in what a plan asks for.
--
--     LOADMASTER_PLAN=plans/7f3c sbatch job.sh
--     sbatch --comment=loadmaster:plans/7f3c job.sh
--
-- asks the planner and sets --nodes, --gpus-per-node and --switches (or --segment) where the user has not, and a comment that
-- job_submit.lua compares with what is submitted. Without a plan it does nothing, and for a step inside of a job neither; a job that is
-- submitted inside of a job names its plan with --comment alone. Whatever goes wrong, the job is submitted as the user typed it, at
-- most 2 seconds later, and the user reads why.

-- The client, and how long it may take: its own limit, then a signal, then another one.
local CLIENT = "loadmaster --timeout 1.2s --quiet slurm request"
local LIMIT = "timeout --kill-after=0.2s 1.5s"
-- What `timeout` ends with where it had to end the client, gently or not.
local LATE = { ["124"] = true, ["137"] = true }

-- What may be filled in, and what a value of it looks like. A comment is written besides.
local FILLED = {
    ["nodes"] = "^%d+$",
    ["gpus-per-node"] = "^[%w_.:,-]+$",
    ["switches"] = "^%d+$",
    ["segment"] = "^%d+$",
}
-- What the client says besides, and the job itself decides.
local LEFT = { ["ntasks-per-node"] = true }
local STAMP = "^loadmaster:plans/[a-z0-9-]+;[%w_.:,;=-]+$"
-- Other ways to ask for GPUs: who uses one has asked.
local OTHER_GPUS = { "gres", "gpus", "gpus-per-task", "gpus-per-socket" }
-- How Slurm writes options that nobody gave; without any limit, jobs ask for "1-0" nodes.
local UNSET = { [""] = true, ["unset"] = true, ["1-0"] = true, ["(null)"] = true }

local function say(text)
    slurm.log_info("loadmaster: %s", text)
end

-- The plan that the variable names. Inside of a job it says which plan that job has (`loadmaster slurm exec` sets it), and what is
-- submitted there inherits it without having asked.
local function plan_of_environment()
    return not os.getenv("SLURM_JOB_ID") and os.getenv("LOADMASTER_PLAN") or ""
end

-- The plan that the user names: nothing but a name that a shell can be given.
local function plan_of(options)
    local named = (options["comment"] or ""):match("^loadmaster:([^;]*)$") or plan_of_environment()
    if named == "" then
        return nil
    end
    local id = named:match("^plans/([a-z0-9-]+)$") or named:match("^([a-z0-9-]+)$")
    if not id then
        say("LOADMASTER_PLAN or --comment names no plan (plans/ID): nothing is filled in")
        return nil
    end
    return "plans/" .. id
end

-- What the client printed, its exit status, and the milliseconds that it took.
local function ask(plan)
    -- Lua has no clock that is fine enough.
    local line = "begin=$(date +%s%N); " .. LIMIT .. " " .. CLIENT .. " " .. plan .. " 2>&1; status=$?; "
        .. "printf '\\n%d %d\\n' $status $(( ($(date +%s%N) - begin) / 1000000 ))"
    local pipe = assert(io.popen(line, "r"))
    local text = pipe:read("*a") or ""
    pipe:close()
    local told, status, milliseconds = text:match("^(.*)\n(%d+) (%d+)\n$")
    return told or "", status or "none", milliseconds or "some"
end

-- The options of the client's lines and the comment, or why these are none.
local function read(text, plan)
    if text:find("#SBATCH hetjob", 1, true) then
        return nil, nil, "it needs a heterogeneous job: submit what `loadmaster slurm script " .. plan .. "` prints"
    end
    local asked, stamp = {}, nil
    for line in text:gmatch("[^\n]+") do
        local name, value = line:match("^#SBATCH %-%-([a-z-]+)=(%S+)$")
        if name == "comment" and value:match(STAMP) and value:find("loadmaster:" .. plan .. ";", 1, true) == 1 then
            stamp = value
        elseif name and FILLED[name] and value:match(FILLED[name]) then
            asked[name] = value
        elseif not (name and LEFT[name]) and line:match("^#") then
            return nil, nil, "the client printed what is no request"
        end
    end
    if not stamp or not asked["nodes"] then
        return nil, nil, "the client printed no request"
    end
    return asked, stamp, nil
end

-- What the user asks for with an option; nothing where that is left open.
local function typed(options, name)
    local value = options[name]
    if value == nil or UNSET[value] then
        return nil
    end
    -- Some versions write one number of nodes as a range.
    return value:match("^(%d+)%-%1$") or value
end

local function asks_for_gpus(options)
    for _, name in ipairs(OTHER_GPUS) do
        if typed(options, name) then
            return true
        end
    end
    return false
end

local function fill(options)
    local plan = plan_of(options)
    if not plan then
        return
    end
    local text, status, milliseconds = ask(plan)
    local after = " (" .. milliseconds .. " ms)"
    if status ~= "0" then
        local why = not LATE[status] and text:match("[^\n]+") or "the planner did not answer in time"
        say(plan .. ": nothing is filled in, the job is submitted as it is: " .. why:sub(1, 300):gsub("%c", " ") .. after)
        return
    end
    local asked, stamp, wrong = read(text, plan)
    if wrong then
        say(plan .. ": nothing is filled in, the job is submitted as it is: " .. wrong .. after)
        return
    end
    if not typed(options, "gpus-per-node") and asks_for_gpus(options) then
        asked["gpus-per-node"] = nil
    end
    local set = {}
    for name, value in pairs(asked) do
        local own = typed(options, name)
        if own and own ~= value then
            say(("%s: --%s=%s stays, and the plan asks for %s: nothing is filled in%s"):format(plan, name, own, value, after))
            return
        end
        set[name] = not own and value or nil
    end
    local told = {}
    for name, value in pairs(set) do
        options[name] = value
        told[#told + 1] = "--" .. name .. "=" .. value
    end
    table.sort(told)
    local comment = options["comment"] or ""
    local theirs = comment:match("^loadmaster:") and "" or comment
    options["comment"] = theirs == "" and stamp or (theirs .. " " .. stamp)
    say(plan .. " asks for " .. (#told > 0 and table.concat(told, " ") or "what is asked for already") .. after)
end

function slurm_cli_setup_defaults(options, early_pass)
    return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
    if options["type"] == "srun" and os.getenv("SLURM_JOB_ID") then
        return slurm.SUCCESS
    end
    local done, why = pcall(fill, options)
    if not done then
        say("nothing is filled in: " .. tostring(why))
    end
    return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
    return slurm.SUCCESS
end
