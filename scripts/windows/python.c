/* python.exe for scripts/try_windows_wheel.sh: the library of Python for Windows comes without one. */
#include <windows.h>
#include <stdio.h>

int main(void) {
    HMODULE library = LoadLibraryW(L"python" PYTHON L".dll");
    if (!library) {
        fprintf(stderr, "python.exe: no library of Python: error %lu\n", GetLastError());
        return 100;
    }
    int (*run)(int, wchar_t **) = (int (*)(int, wchar_t **))(void *)GetProcAddress(library, "Py_Main");
    int count;
    wchar_t **arguments = CommandLineToArgvW(GetCommandLineW(), &count);
    return run && arguments ? run(count, arguments) : 100;
}
