"""Drives a headless browser, and records the errors of a page and its requests."""

import json
import shutil
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait


SECONDS = 60  # the longest wait, long enough for a busy machine
# The elements that may have a role
CANDIDATES = {
    "article": "article",
    "button": "button",
    "checkbox": "input",
    "columnheader": "th",
    "combobox": "select",
    "group": "[role=group]",
    "list": "ul",
    "rowheader": "th",
    "table": "table",
    "textbox": "input",
}


class Browser:
    """Headless Chromium. `driver` is Selenium's, and `keys` has names for keys without a character."""

    keys = Keys

    def __init__(self):
        paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
        if missing := [name for name, path in paths.items() if path is None]:
            pytest.fail(f"{' and '.join(missing)} missing: `make .venv/browser` installs the browser of these tests.")
        options = ChromeOptions()
        options.binary_location = paths["chromium"]
        # The sandbox does not start in containers, and their /dev/shm is small.
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,1000"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = Chrome(options=options, service=Service(paths["chromedriver"]))

    def new_chain(self) -> ActionChains:
        """Returns a chain of keys and clicks that go wherever the focus is."""
        return ActionChains(self.driver)

    def save_into(self, folder: Path):
        """Sets the folder in which the page saves files."""
        settings = {"behavior": "allow", "downloadPath": str(folder)}
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", settings)

    def open(self, page: str | Path, ready: str):
        """Opens an address or a file, and waits until the element of the selector `ready` has text."""
        self.problems()
        self.driver.get(page if isinstance(page, str) else page.resolve().as_uri())
        self.wait_for(lambda: self.text(ready))

    def wait_for(self, condition):
        """Waits until the condition is true, and returns its value."""
        return WebDriverWait(self.driver, SECONDS).until(lambda _: condition())

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def by_role(self, role: str, name: str, within: WebElement | None = None) -> WebElement:
        """Returns the one element that a screen reader presents with a role and a name."""
        found = [
            element
            for element in (within or self.driver).find_elements(By.CSS_SELECTOR, CANDIDATES[role])
            if element.accessible_name == name and element.aria_role == role
        ]
        assert len(found) == 1, f"{len(found)} elements have the role {role} and the name {name!r}."
        return found[0]

    def item(self, listed: WebElement, text: str) -> WebElement:
        """Returns the one item of a list that has a text."""
        items = listed.find_elements(By.TAG_NAME, "li")
        (found,) = (one for one in items if text in one.get_property("textContent"))
        return found

    def choose_option(self, field: WebElement, name: str):
        """Chooses the one option whose label is a name, or a name, a colon and what it means."""
        options = field.find_elements(By.TAG_NAME, "option")
        (found,) = (one for one in options if one.get_property("label").split(": ")[0] == name)
        found.click()

    def text(self, selector: str, within: WebElement | None = None) -> str:
        """Returns the text of the first element, even if it is scrolled away."""
        found = (within or self.driver).find_element(By.CSS_SELECTOR, selector)
        return found.get_property("textContent").strip()

    def texts(self, selector: str, within: WebElement | None = None) -> list[str]:
        """Returns the texts of all elements, or of those within another one."""
        script = """
            const found = (arguments[1] ?? document).querySelectorAll(arguments[0]);
            return [...found].map((one) => one.textContent.trim());
        """
        return self.driver.execute_script(script, selector, within)

    def set_value(self, field: str | WebElement, value: str | float):
        """Sets the value of an input field or a slider, and fires the events that a person's change fires."""
        script = """
            arguments[0].value = arguments[1];
            for (const kind of ["input", "change"]) arguments[0].dispatchEvent(new Event(kind, { bubbles: true }));
        """
        element = self.find(field) if isinstance(field, str) else field
        self.driver.execute_script(script, element, str(value))

    def problems(self) -> list[str]:
        """Returns the console's messages since the last call, and requests for anything but pages and `data:` URLs."""
        problems = [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent" and event["params"].get("type") != "Document":
                problems.append(event["params"]["request"]["url"])
        return [problem for problem in problems if not problem.startswith(("data:", "about:"))]
