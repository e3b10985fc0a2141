/* What NVML says without a driver: NVML_ERROR_DRIVER_NOT_LOADED. */
const char *nvmlErrorString(int status) { return "stub: no driver"; }
int nvmlInit_v2(void) { return 9; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) { return 9; }
