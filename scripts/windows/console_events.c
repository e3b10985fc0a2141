/* Runs a program of Windows in a console of its own, and sends it events of that console: for scripts/try_windows.sh.
 *
 *   console_events.exe FILE PROGRAM [ARGUMENT ...]
 *
 * FILE is not there at first. What it begins with is sent as soon as it is there: `c` for Ctrl-C, `b` for Ctrl-Break.
 * The exit code is that of the program. */
#include <windows.h>
#include <stdio.h>

static BOOL WINAPI stay(DWORD event) {
    (void)event;
    return TRUE;
}

/* What follows the first word of a command line, which may be in quotation marks. */
static wchar_t *after_word(wchar_t *line) {
    BOOL quoted = FALSE;
    while (*line && (quoted || *line != L' ')) {
        quoted ^= *line++ == L'"';
    }
    while (*line == L' ') {
        line++;
    }
    return line;
}

static int failed(const char *what) {
    fprintf(stderr, "console_events: %s: error %lu\n", what, GetLastError());
    return 100;
}

int main(int count, char **arguments) {
    if (count < 3) {
        fprintf(stderr, "usage: console_events FILE PROGRAM [ARGUMENT ...]\n");
        return 100;
    }
    const char *file = arguments[1];
    STARTUPINFOW start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
    start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    PROCESS_INFORMATION program;
    wchar_t *command = after_word(after_word(GetCommandLineW()));
    if (!CreateProcessW(NULL, command, NULL, NULL, TRUE, CREATE_NO_WINDOW, NULL, NULL, &start, &program)) {
        return failed("start the program");
    }
    BOOL sent = FALSE;
    while (WaitForSingleObject(program.hProcess, 50) == WAIT_TIMEOUT) {
        FILE *opened = sent ? NULL : fopen(file, "r");
        if (!opened) {
            continue;
        }
        int event = fgetc(opened);
        fclose(opened);
        if (event == EOF) {
            continue;
        }
        /* Events go to every process of a console, so this one has to be of the program's. */
        FreeConsole();
        if (!AttachConsole(program.dwProcessId) || !SetConsoleCtrlHandler(stay, TRUE)) {
            return failed("attach to the console");
        }
        if (!GenerateConsoleCtrlEvent(event == 'b' ? CTRL_BREAK_EVENT : CTRL_C_EVENT, 0)) {
            return failed("send the event");
        }
        sent = TRUE;
    }
    DWORD code = 100;
    GetExitCodeProcess(program.hProcess, &code);
    return (int)code;
}
