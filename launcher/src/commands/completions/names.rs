//! Names that the program knows beside its commands and options: recipes, keys of configurations, tasks.

use segue_tasks::TaskData;

use crate::{recipes, slips};

/// Names to complete, each a list of words.
pub struct Names {
    recipes: String,
    /// `section.key=`.
    keys: String,
    tasks: String,
}

impl Names {
    /// Those of this program and of the recipes that came with it.
    pub fn known() -> Self {
        let files = recipes::folder().and_then(|folder| recipes::files(&folder).ok()).unwrap_or_default();
        let stems = files.iter().filter_map(|file| file.file_stem()?.to_str().map(String::from));
        let keys = slips::keys().into_iter().map(|key| format!("{key}="));
        Self {
            recipes: stems.collect::<Vec<_>>().join(" "),
            keys: keys.collect::<Vec<_>>().join(" "),
            tasks: TaskData::names().collect::<Vec<_>>().join(" "),
        }
    }

    /// A script of bash with them: what completes commands and options is called first.
    pub fn in_bash(&self, script: &str) -> String {
        let Self { recipes, keys, tasks } = self;
        let commands = slips::WITH_OVERRIDES.map(|command| format!("*\" {command} \"*")).join("|");
        let function = format!(
            r#"_segue_names() {{
    _segue "$@"
    local cur="${{COMP_WORDS[COMP_CWORD]}}"
    case "${{COMP_WORDS[COMP_CWORD-1]}}" in
        --config) COMPREPLY+=($(compgen -W "{recipes}" -- "${{cur}}")); return 0 ;;
        --task) COMPREPLY=($(compgen -W "{tasks}" -- "${{cur}}")); return 0 ;;
    esac
    case " ${{COMP_WORDS[*]}} " in
        {commands})
            if [[ -n "${{cur}}" && "${{cur}}" != [-=]* && "${{COMP_WORDS[COMP_CWORD-1]}}" != = ]]; then
                COMPREPLY+=($(compgen -W "{keys}" -- "${{cur}}"))
                [[ "${{COMPREPLY[*]}}" == *= ]] && compopt -o nospace 2>/dev/null
            fi ;;
    esac
    return 0
}}
"#
        );
        let body = script.replace("complete -F _segue ", "complete -F _segue_names ");
        format!("{function}\n{body}")
    }

    /// A script of zsh with them: its first line says what it completes.
    pub fn in_zsh(&self, script: &str) -> String {
        let Self { recipes, keys, tasks } = self;
        let functions = format!(
            "_segue_recipes() {{ compadd {recipes}; _files }}\n\
             _segue_keys() {{ compadd -S '' {keys}; _files }}\n\
             _segue_tasks() {{ compadd {tasks} }}\n"
        );
        let (first, rest) = script.split_once('\n').unwrap_or((script, ""));
        let line = |line: &str| {
            let is_task = line.contains("--task=[Task, or several");
            let line = line.replace(":FILE|NAME:_files'", ":FILE|NAME:_segue_recipes'");
            let line = if is_task { line.replace(":TASK:_default'", ":TASK:_segue_tasks'") } else { line };
            match line.starts_with("'*::overrides") {
                true => line.replace(":_default'", ":_segue_keys'"),
                false => line,
            }
        };
        let rest: Vec<String> = rest.lines().map(line).collect();
        format!("{first}\n\n{functions}\n{}\n", rest.join("\n"))
    }

    /// A script of fish with them, which adds to what it has of a command. fish itself puts no blank behind `=`.
    pub fn in_fish(&self, script: &str) -> String {
        let Self { recipes, keys, tasks } = self;
        let of = |command: &str| {
            let when = format!("complete -c segue -n \"__fish_segue_using_subcommand {command}\"");
            format!("{when} -l config -r -a \"{recipes}\"\n{when} -a \"{keys}\"\n")
        };
        let added: String = slips::WITH_OVERRIDES.map(of).concat();
        let of_tasks = format!(
            "complete -c segue -n \"__fish_segue_using_subcommand finetune\" -l task -r -f -a \"{tasks}\"\n"
        );
        format!("{script}{added}{of_tasks}")
    }
}
