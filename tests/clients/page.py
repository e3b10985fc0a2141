"""Uses a server's page in Chromium: page.py HOST:PORT AXE.JS PICTURE FOLDER

The server has the engines `model` (pictures to pictures) and `sd` (texts to pictures, with a limit of 40 steps).
PICTURE is a PNG of 64x64. Screenshots go to FOLDER.
"""

import json
import pathlib
import sys
import tempfile

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

address, axe, picture, folder = sys.argv[1:]
folder = pathlib.Path(folder)
folder.mkdir(parents=True, exist_ok=True)
axe = pathlib.Path(axe).read_text()
profile = tempfile.TemporaryDirectory()
options = webdriver.ChromeOptions()
options.binary_location = "/usr/bin/chromium"
for flag in [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--lang=en-US",
    "--window-size=1200,1100", f"--user-data-dir={profile.name}",
]:
    options.add_argument(flag)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
browser = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))


def at(name):
    return browser.find_element(By.ID, name)


def wait(what, holds, seconds=60):
    WebDriverWait(browser, seconds, 0.05).until(lambda _: holds(), f"{what}: {at('status').text} {at('error').text}")


def check_for_all(state):
    """No finding of axe-core, and nothing in the console that is not expected."""
    browser.execute_script(axe)
    found = browser.execute_async_script("axe.run().then(arguments[0])")["violations"]
    assert not found, f"{state}: " + json.dumps([(one["id"], [node["html"] for node in one["nodes"]]) for one in found])


def shot(name):
    browser.save_screenshot(str(folder / f"{name}.png"))


def choose(engine):
    Select(at("engine")).select_by_value(engine)


def colour_scheme(name):
    feature = {"name": "prefers-color-scheme", "value": name}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def size(name):
    return browser.execute_script("const i = arguments[0]; return [i.naturalWidth, i.naturalHeight]", at(name))


try:
    browser.get(f"http://{address}/")
    wait("engines", lambda: len(at("engine").find_elements(By.TAG_NAME, "option")) == 3)
    assert at("task").text == "Makes a picture larger or better.", at("task").text
    check_for_all("empty")

    # Nothing to enlarge is said where a screen reader says it.
    at("start").click()
    wait("the error", lambda: at("error").text == "Choose a picture first.")
    assert at("error").get_attribute("role") == "alert"

    # A file that is no picture: the server's words.
    wrong = folder / "wrong.png"
    wrong.write_text("<script>document.title = 'taken'</script>")
    at("file").send_keys(str(wrong.resolve()))
    at("start").click()
    wait("the server's error", lambda: at("error").text.startswith("It failed: "))
    assert browser.title == "Tileforge"
    check_for_all("error")
    shot("error")

    # A picture that is dropped is enlarged, and lies beside its original.
    drop = """const data = new DataTransfer();
        data.items.add(new File([Uint8Array.from(arguments[1])], "dropped.png", { type: "image/png" }));
        arguments[0].dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));"""
    browser.execute_script(drop, at("drop"), list(pathlib.Path(picture).read_bytes()))
    wait("the picture", lambda: at("chosen").is_displayed())
    at("start").click()
    wait("the result", lambda: at("compare").is_displayed())
    wait("its pixels", lambda: size("after") == [256, 256])
    assert at("status").text == "Done." and at("error").text == ""
    clip = lambda: at("before").value_of_css_property("clip-path")
    assert "50%" in clip(), clip()
    at("slider").send_keys(Keys.ARROW_RIGHT * 10)
    assert "40%" in clip(), clip()
    check_for_all("result")
    shot("enlarged")
    assert len(at("history").find_elements(By.TAG_NAME, "button")) == 1

    # An engine that fills in needs a mask, and leaves all other pixels as they are.
    choose("remover")
    assert at("task").text == "Fills in what you paint over." and not at("prompt").is_displayed()
    at("start").click()
    wait("the wish for a mask", lambda: "paint a mask" in at("error").text)
    assert not at("mask-optional").is_displayed()
    browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", at("mask"))
    ActionChains(browser).move_to_element_with_offset(at("mask"), 20, 20).click().perform()
    at("start").click()
    wait("the result", lambda: at("status").text == "Done." and size("after") == [64, 64])
    changed = """const data = (image) => { const c = document.createElement("canvas"); c.width = c.height = 64;
        const p = c.getContext("2d"); p.drawImage(image, 0, 0); return p.getImageData(0, 0, 64, 64).data; };
        const [before, after, mask] = ["before", "after", "mask"].map(id => data(document.getElementById(id)));
        const counts = [0, 0];
        for (let i = 0; i < 4 * 64 * 64; i += 4)
            if ([0, 1, 2].some(c => before[i + c] !== after[i + c])) counts[Number(mask[i + 3] > 0)]++;
        return counts;"""
    outside, inside = browser.execute_script(changed)
    assert outside == 0 and inside > 20, (outside, inside)
    check_for_all("filled in")
    shot("filled-in")
    at("clear-mask").click()

    # A part of it is made anew, with a mask by the mouse.
    choose("sd")
    assert at("mask-optional").is_displayed()
    wait("the mask", lambda: at("masking").is_displayed())
    at("prompt").send_keys("a fox <img src=x onerror=\"document.title='taken'\">")
    at("negative").send_keys("rain")
    at("steps").clear()
    at("steps").send_keys("40")
    at("seed").send_keys("5")
    canvas = at("mask")
    browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", canvas)
    stroke = ActionChains(browser).move_to_element_with_offset(canvas, -60, -40)
    stroke.click_and_hold().move_by_offset(120, 60).release().perform()
    painted = "const c = arguments[0]; const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
    painted += "let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n"
    by_mouse = browser.execute_script(painted, canvas)
    assert 100 < by_mouse < 4000, by_mouse
    check_for_all("mask")
    shot("mask")
    at("start").click()
    wait("a preview", lambda: at("preview").is_displayed())
    wait("the result", lambda: at("compare").is_displayed() and "seed 5" in at("facts").text)
    assert size("after") == [64, 64] and browser.title == "Tileforge"
    wait("the history", lambda: len(at("history").find_elements(By.TAG_NAME, "button")) == 3)
    shot("masked")

    # Too much is refused in words.
    at("steps").clear()
    at("steps").send_keys("41")
    at("start").click()
    wait("the limit", lambda: "steps: expected a number from 1 to 40" in at("error").text)

    # The keyboard alone: from the top of the page to a result.
    at("remove").click()
    at("steps").clear()
    browser.refresh()
    wait("engines", lambda: len(at("engine").find_elements(By.TAG_NAME, "option")) == 3)
    wait("the history stays", lambda: len(at("history").find_elements(By.TAG_NAME, "button")) == 3)
    active = lambda: browser.switch_to.active_element.get_attribute("id")

    def press(*keys):
        chain = ActionChains(browser)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    def tab_to(name):
        for _ in range(40):
            if active() == name:
                return
            press(Keys.TAB)
        raise AssertionError(f"{name} is not reached by the keyboard")

    tab_to("engine")
    press("s")
    wait("the pipeline", lambda: at("prompt").is_displayed())
    tab_to("prompt")
    press("a fox in the snow")
    tab_to("steps")
    press(Keys.BACKSPACE, Keys.BACKSPACE, "6")
    tab_to("start")
    press(Keys.ENTER)
    wait("the result", lambda: at("compare").is_displayed())
    assert not at("slider").is_displayed(), "there is no original to compare with"

    # The mask by the keyboard.
    at("file").send_keys(picture)
    wait("the mask", lambda: at("masking").is_displayed())
    tab_to("mask")
    press(" ", Keys.ARROW_RIGHT, " ", Keys.ARROW_DOWN, " ")
    assert browser.execute_script(painted, at("mask")) > 20
    # An original whose mask is the keyboard's, with the slider moved by the keyboard.
    tab_to("start")
    press(Keys.ENTER)
    wait("the result", lambda: at("slider").is_displayed())
    tab_to("slider")
    press(Keys.ARROW_LEFT)
    assert "51%" in clip(), clip()

    # German, in the dark.
    Select(at("language")).select_by_value("de")
    colour_scheme("dark")
    assert browser.find_element(By.TAG_NAME, "html").get_attribute("lang") == "de"
    assert at("status").text == "Fertig." and "Startzahl" in at("facts").text
    assert at("start").text == "Start" and at("cancel").get_attribute("textContent") == "Abbrechen"
    check_for_all("dark, in German")
    shot("dark-german")
    colour_scheme("light")
    texts = browser.execute_async_script("import('/page/texts.js').then(m => arguments[0](m.TEXTS))")
    assert texts["en"].keys() == texts["de"].keys(), texts["en"].keys() ^ texts["de"].keys()
    Select(at("language")).select_by_value("en")

    # A job that is cancelled.
    browser.execute_script("document.getElementById('steps').value = 40")
    at("start").click()
    browser.execute_script("document.getElementById('cancel').click()")
    wait("cancelled", lambda: at("status").text == "Cancelled.")
    at("clear-history").click()
    wait("an empty history", lambda: at("no-history").is_displayed())

    # A narrow window.
    browser.set_window_size(420, 900)
    wide = browser.execute_script("return document.documentElement.scrollWidth > window.innerWidth")
    assert not wide, "the page is wider than a narrow window"
    check_for_all("narrow")
    shot("narrow")

    # No file of another address, and nothing that the policy had to stop.
    entries = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(name.startswith((f"http://{address}/", f"blob:http://{address}/")) for name in entries), entries
    log = [line["message"] for line in browser.get_log("browser")]
    assert not [line for line in log if "Content Security Policy" in line or "Uncaught" in line], log
    print("the page does what it is for")
except BaseException:
    shot("failed")
    log = [line["message"] for line in browser.get_log("browser")]
    print(at("status").text, at("error").text, log, file=sys.stderr)
    raise
finally:
    browser.quit()
    profile.cleanup()
