import sys
from pathlib import Path
import os,time
from gpu_check import Programs, verify_engines
programs=Programs(Path(os.environ["TILEFORGE_BINARIES"]))
t=time.time();bad=0;n=0
for ok,said in verify_engines(programs,Path(sys.argv[1]),["cuda"],int(sys.argv[2])):
    n+=1;bad+=not ok
    print("ok " if ok else "BAD",said,flush=True)
print(n,"engines",bad,"bad",time.time()-t,"s")
